"""`SplitProblem`: a training step whose sub-batches and algorithms are to be chosen.

A batch may be processed in sub-batches, whose gradients add up: a *split* is a list of rounds, each
some images, one after the other. Between rounds nothing but what stays anyway is on the device, so
every round is a problem of its own, and the step takes as long as its rounds together: for the
shortest step each round's schedule is the shortest (docs/theory/modnn.md). Within a round every
operation may offer alternatives.

Both choices are made before anything is scheduled. What they leave is a trace a round, and
everything that works on traces works on it.

Files have the format ``offcert-step``, version 1. ``splits`` lists the ways to divide the batch;
each has ``rounds``, with the ``images`` of a sub-batch, how often it is repeated (``count``), its
``trace`` and its ``menu``: for each operation that can be executed in several ways, its index and
its ``alternatives``. Everything else is as in a problem file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from offcert.core.documents import Fields, read_document, require_format, write_json
from offcert.core.errors import InputError
from offcert.core.forms import OBJECT, TEXT, Absent, Form, Integer, Member, Object, Record
from offcert.core.list_forms import Each
from offcert.core.messages import short_repr
from offcert.core.network_json import TRACE
from offcert.core.platform import PLATFORM, UNITS, Platform
from offcert.core.trace import LARGEST_TOTAL, Trace, require_integer
from offcert.core.units import Units
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.split.menu import Alternative, Menu


@dataclass(frozen=True)
class Round:
    """Part of a batch, processed at a time, and how often that is repeated."""

    images: int  # In the sub-batch.
    count: int  # How many sub-batches of that size follow each other.
    trace: Trace
    menu: Menu = field(default_factory=Menu)

    def __post_init__(self) -> None:
        require_integer(self.images, "round.images", 1)
        require_integer(self.count, "round.count", 1)
        self.menu.require_fits(self.trace)
        _require_separate(self.trace)

    def relaxed(self, memory: int) -> Trace:
        """Return a trace no harder to schedule in a memory than that of any choice."""
        return self.menu.relaxed(self.trace, memory)

    def chosen(self, choice: Sequence[int]) -> Trace:
        """Return the trace that a choice from the menu makes."""
        return self.menu.chosen(self.trace, choice)


@dataclass(frozen=True)
class Split:
    """A way to divide a batch: its rounds, one after the other."""

    rounds: tuple[Round, ...]

    def __init__(self, rounds: Iterable[Round]) -> None:
        object.__setattr__(self, "rounds", tuple(rounds))
        if not self.rounds:
            raise InputError("a split must have at least one round")

    @property
    def size(self) -> int:
        """Images in the largest sub-batch."""
        return max(each.images for each in self.rounds)

    @property
    def batch(self) -> int:
        """Images in all rounds together."""
        return sum(each.images * each.count for each in self.rounds)

    def __repr__(self) -> str:
        parts = " + ".join(f"{each.count}·{each.images}" for each in self.rounds)
        return f"<Split {parts}>"


@dataclass(frozen=True)
class SplitProblem:
    """Find the split, the alternatives and the schedules that make a step shortest.

    Parameters
    ----------
    name : str
        Name for people.
    splits : iterable of Split
        The ways to divide the batch that are offered; at least one, of the same batch each.
    platform : Platform
        Memory and link.
    transfers : Transfers or str
        As in `Problem`.
    units : Units
        Units of ticks and sizes.
    source : mapping, optional
        Where it comes from.

    Raises
    ------
    InputError
        If there is no split, or they are of different batches.
    """

    name: str
    splits: tuple[Split, ...]
    platform: Platform
    transfers: Transfers = Transfers.ATOMIC
    units: Units = field(default_factory=Units)
    source: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "splits", tuple(self.splits))
        if not self.splits or not all(isinstance(each, Split) for each in self.splits):
            raise InputError("splits must be at least one Split")
        if self.transfers not in tuple(Transfers):
            known = ", ".join(f'"{each}"' for each in Transfers)
            raise InputError(f"transfers must be one of {known}, not {short_repr(self.transfers)}")
        object.__setattr__(self, "transfers", Transfers(self.transfers))
        batches = sorted({split.batch for split in self.splits})
        if len(batches) > 1:
            raise InputError(
                f"all splits must be of the same batch, not of {batches[0]} and {batches[1]}"
            )
        for split, row in enumerate(self.splits):
            # Problems of scheduling refuse what does not go together.
            total = sum(
                each.count * self.scheduling(each.relaxed(self.platform.memory)).trace.compute_time
                for each in row.rounds
            )
            if total >= LARGEST_TOTAL:
                raise InputError(f"splits[{split}] takes 2**61 ticks or more")

    @property
    def batch(self) -> int:
        """Images in the batch."""
        return self.splits[0].batch

    def scheduling(self, trace: Trace) -> Problem:
        """Return the problem of scheduling the trace of a round."""
        return Problem(self.name, trace, self.platform, self.transfers, self.units)

    def with_memory(self, memory: int) -> SplitProblem:
        """Return the same problem with another memory limit."""
        return replace(self, platform=replace(self.platform, memory=memory))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The sub-batch of each split."""
        return tuple(split.size for split in self.splits)

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.sizes))
        return f"<SplitProblem {short_repr(self.name)}: batch {self.batch}, sub-batches {sizes}>"


def _require_separate(trace: Trace) -> None:
    """Raise unless rounds of a trace can follow each other without anything in common."""
    last = len(trace) - 1
    for index, tensor in enumerate(trace.tensors):
        if tensor.uses[0] == -1 and (tensor.evictable or tensor.uses[-1] != last):
            raise InputError(
                f"round.trace.tensors[{index}] ({tensor.name}) is there at the start of the round, "
                "so it must stay on the device until its end"
            )


SPLIT_FORMAT = "offcert-step"
# The version of the format. By definition.
SPLIT_VERSION = 1


class _Offers(Form):
    """The field of a menu: a list with an object for each operation on it."""

    rule = "a list of operations, each with its alternatives"
    _row: Record[Any] = Record(
        dict,
        operation=Integer(0),
        alternatives=Each(
            Object(Record(Alternative, name=TEXT, duration=Integer(0), workspace=Integer(0)))
        ),
    )

    def read(self, fields: Fields, name: str) -> Menu:
        offers: dict[int, tuple[Alternative, ...]] = {}
        for item in fields.each(name):
            row = self._row.read(item)
            if row["operation"] in offers:
                raise InputError(f"{item.path('operation')} must not be {row['operation']} again")
            offers[row["operation"]] = row["alternatives"]
        return Menu(offers)

    def write(self, value: Menu) -> list[dict[str, Any]]:
        alternatives = self._row.forms["alternatives"]
        return [
            {"operation": operation, "alternatives": alternatives.write(row)}
            for operation, row in value.offers
        ]


_ROUND = Record(Round, images=Integer(1), count=Integer(1), trace=Object(TRACE), menu=_Offers())
_SPLITS = Each(Object(Record(Split, rounds=Each(Object(_ROUND)))))
_REST: Record[Any] = Record(
    dict,
    name=TEXT,
    splits=_SPLITS,
    transfers=Member(Transfers),
    units=UNITS,
    source=Absent(OBJECT),
)


def split_to_json(step: SplitProblem) -> dict[str, Any]:
    """Return a step as a JSON value."""
    platform = PLATFORM.write(step.platform)
    # Rationals are not written as elsewhere, so that old steps keep their hash.
    rates = {name: str(Fraction(rate)) for name, rate in platform.items() if "bandwidth" in name}
    said = {"format": SPLIT_FORMAT, "version": SPLIT_VERSION}
    return said | platform | rates | _REST.write(step)


def split_from_json(document: Any, place: str = "") -> SplitProblem:
    """Return the step that a JSON value describes."""
    fields = Fields(document, place)
    require_format(fields, SPLIT_FORMAT, SPLIT_VERSION)
    platform = Platform(**PLATFORM.values(fields))
    step = SplitProblem(platform=platform, **_REST.values(fields))
    fields.finish()
    return step


def read_split(path: str | Path) -> SplitProblem:
    """Return the step in a file.

    Raises
    ------
    InputError
        If the file cannot be read or describes no step.
    """
    return read_document(path, split_from_json)


def write_split(path: str | Path, step: SplitProblem) -> None:
    """Write a step to a file, through a temporary one."""
    write_json(path, split_to_json(step))
