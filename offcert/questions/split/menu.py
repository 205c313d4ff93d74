"""`Menu`: operations with alternative algorithms, and the trace that a choice makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.trace import LARGEST_TOTAL, Operation, Trace, require_integer


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way to execute an operation, for example an algorithm for a convolution."""

    name: str
    duration: int  # Ticks, at least 0.
    workspace: int = 0  # Bytes that are taken only while the operation runs.


@dataclass(frozen=True)
class Menu:
    """The operations of a trace that can be executed in several ways, each with its alternatives.

    A choice names, for each operation on the menu, one alternative by its position. It makes a
    trace of a trace: with the durations and workspaces chosen, and everything else as it was. What
    the trace itself says of duration and workspace of an operation on the menu does not count.
    """

    # By operation; at least one alternative each.
    offers: tuple[tuple[int, tuple[Alternative, ...]], ...]

    def __init__(self, offers: Mapping[int, Iterable[Alternative]] | None = None) -> None:
        rows = ((operation, tuple(row)) for operation, row in sorted((offers or {}).items()))
        object.__setattr__(self, "offers", tuple(rows))
        for operation, row in self.offers:
            place = f"menu[{require_integer(operation, 'menu.operation', 0)}]"
            if not row:
                raise InputError(f"{place} must offer at least one alternative")
            for number, each in enumerate(row):
                here = f"{place}[{number}]"
                if not isinstance(each, Alternative) or not isinstance(each.name, str):
                    raise InputError(f"{here} must be an Alternative, not {short_repr(each)}")
                for field in ("duration", "workspace"):
                    value = require_integer(getattr(each, field), f"{here}.{field}", 0)
                    if value >= LARGEST_TOTAL:
                        raise InputError(f"{here}.{field} must be less than 2**61, not {value}")

    def __len__(self) -> int:
        """Return the number of operations on the menu."""
        return len(self.offers)

    def __repr__(self) -> str:
        return f"<Menu: {len(self)} operations, {self.choices} choices>"

    @cached_property
    def of(self) -> Mapping[int, tuple[Alternative, ...]]:
        """The alternatives by operation."""
        return dict(self.offers)

    @property
    def choices(self) -> int:
        """In how many ways one can choose."""
        return prod(len(row) for _, row in self.offers)

    def require_fits(self, trace: Trace) -> None:
        """Raise `InputError` if the menu names an operation that a trace does not have."""
        if self.offers and self.offers[-1][0] >= len(trace):
            raise InputError(
                f"the menu names operation {self.offers[-1][0]}, of which there are {len(trace)}"
            )

    def chosen(self, trace: Trace, choice: Sequence[int]) -> Trace:
        """Return the trace with a choice: a position for each operation on the menu."""
        self.require_fits(trace)
        if len(choice) != len(self):
            raise InputError(f"a choice must have {len(self)} entries, not {len(choice)}")
        picked: dict[int, Operation] = {}
        for index, ((operation, row), number) in enumerate(zip(self.offers, choice, strict=True)):
            if not 0 <= require_integer(number, f"choice[{index}]") < len(row):
                raise InputError(
                    f"choice[{index}] must be from 0 to {len(row) - 1}, not {number}: operation "
                    f"{operation} has {len(row)} alternatives"
                )
            each = row[number]
            name = f"{trace.operations[operation].name} [{each.name}]"
            picked[operation] = Operation(name, each.duration, each.workspace)
        return self._with(trace, picked)

    def restricted(self, allowed: Mapping[int, Iterable[int]]) -> Menu:
        """Return the menu with only some alternatives of some operations, by their positions."""
        rows = dict(self.offers)
        for operation, positions in allowed.items():
            row = rows.get(operation, ())
            kept = tuple(sorted(positions))
            if not kept or not 0 <= kept[0] <= kept[-1] < len(row):
                raise InputError(
                    f"operation {operation} has {len(row)} alternatives, which {list(kept)} are not"
                )
            rows[operation] = tuple(row[position] for position in kept)
        return Menu(rows)

    def fitting(self, trace: Trace, memory: int) -> Menu:
        """Return the menu without alternatives that cannot fit into a memory of so many bytes.

        An alternative goes if its workspace does not fit beside what no schedule can have absent
        while the operation runs. If none of an operation fits, nothing does, and all stay.
        """
        self.require_fits(trace)
        rows = {}
        for operation, row in self.offers:
            beside = trace.least_demand[operation] - trace.operations[operation].workspace
            fits = tuple(each for each in row if beside + each.workspace <= memory)
            rows[operation] = fits or row
        return Menu(rows)

    def relaxed(self, trace: Trace, memory: int) -> Trace:
        """Return a trace that is no harder to schedule in a memory than that of any choice.

        Each operation takes the least time and the least workspace that any fitting alternative
        has, even if no single one has both: a schedule for a choice is one for this trace, when its
        operations end earlier. So bounds for it are bounds for every choice.
        """
        picked = {
            operation: Operation(
                trace.operations[operation].name,
                min(each.duration for each in row),
                min(each.workspace for each in row),
            )
            for operation, row in self.fitting(trace, memory).offers
        }
        return self._with(trace, picked)

    def _with(self, trace: Trace, picked: Mapping[int, Operation]) -> Trace:
        operations = (picked.get(index, each) for index, each in enumerate(trace.operations))
        return Trace(operations, trace.tensors)

    def fastest(self) -> tuple[int, ...]:
        """Return the choice of least durations; among equals, of the least workspace."""
        return self._least(lambda each: (each.duration, each.workspace))

    def leanest(self) -> tuple[int, ...]:
        """Return the choice of least workspaces; among equals, of the least duration."""
        return self._least(lambda each: (each.workspace, each.duration))

    def _least(self, key: Callable[[Alternative], tuple[int, int]]) -> tuple[int, ...]:
        return tuple(
            min(range(len(row)), key=lambda number: key(row[number])) for _, row in self.offers
        )


def undominated(alternatives: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """Return the alternatives that no other one beats, by increasing workspace.

    One beats another if it takes neither longer nor more workspace, and was named before it or
    takes less of one.
    """
    kept: list[Alternative] = []
    for each in sorted(alternatives, key=lambda each: (each.workspace, each.duration)):
        if not kept or each.duration < kept[-1].duration:
            kept.append(each)
    return tuple(kept)
