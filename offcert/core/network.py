"""`Network`: a graph of computations and values with costs, before any order is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from offcert.core.computations import Computation, Expansion, Run, Value
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.trace import LARGEST_TOTAL, Trace, require_integer


@dataclass(frozen=True)
class Network:
    """Computations in the order in which the program runs them first, and the values they exchange.

    An execution runs every computation at least once, the first runs in this order; those that are
    repeatable may run again at any later time at which what they read is there. So a network stands
    for many traces: a `Strategy` chooses one.

    Parameters
    ----------
    computations : iterable of Computation
        At least one.
    values : iterable of Value
        In any order; the index of a value is its name everywhere else.

    Raises
    ------
    InputError
        If a number is no integer or negative, an index is out of range or out of order, a value is
        written twice, read before it is written, or changed in place by what may not do so, or the
        totals leave 61 bits.
    """

    computations: tuple[Computation, ...]
    values: tuple[Value, ...]

    def __init__(self, computations: Iterable[Computation], values: Iterable[Value]) -> None:
        object.__setattr__(self, "computations", tuple(computations))
        object.__setattr__(self, "values", tuple(values))
        if not self.computations:
            raise InputError("a network must have at least one computation")
        for index, value in enumerate(self.values):
            self._validate_value(index, value)
        for index, computation in enumerate(self.computations):
            self._validate_computation(index, computation)
        self._validate_flow()
        self._validate_totals()

    def _validate_value(self, index: int, value: Value) -> None:
        place = f"values[{index}]"
        require_integer(value.size, f"{place}.size", 0)
        if value.base is None:
            return
        self._require_value(value.base, f"{place}.base")
        if self.values[value.base].base is not None or value.base == index:
            raise InputError(f"{place}.base must be a value with memory of its own")
        if value.size:
            raise InputError(f"{place}.size must be 0 for a value with a base, not {value.size}")

    def _require_value(self, value: object, field: str) -> int:
        number = require_integer(value, field, 0)
        if number >= len(self.values):
            raise InputError(
                f"{field} must be below the number of values, {len(self.values)}, not {number}"
            )
        return number

    def _validate_computation(self, index: int, computation: Computation) -> None:
        place = f"computations[{index}]"
        require_integer(computation.duration, f"{place}.duration", 0)
        require_integer(computation.workspace, f"{place}.workspace", 0)
        if computation.lean is not None:
            require_integer(computation.lean, f"{place}.lean", 0)
        for field in ("reads", "writes", "holds"):
            previous = -1
            for position, value in enumerate(getattr(computation, field)):
                self._require_value(value, f"{place}.{field}[{position}]")
                if value <= previous:
                    raise InputError(
                        f"{place}.{field} must increase strictly, but {value} follows {previous}"
                    )
                previous = value
        for position, other in enumerate(computation.of):
            field = f"{place}.of[{position}]"
            if require_integer(other, field, 0) >= index:
                raise InputError(f"{field} must be below {index}, not {other}")

    def _validate_flow(self) -> None:
        writers: dict[int, int] = {}
        for index, computation in enumerate(self.computations):
            for value in computation.writes:
                if value in writers:
                    raise InputError(
                        f"values[{value}] ({self._name(value)}) is written by computations "
                        f"{writers[value]} and {index}"
                    )
                writers[value] = index
        present = set(range(len(self.values))) - set(writers)
        for index, computation in enumerate(self.computations):
            for value in computation.reads:
                if value not in present:
                    raise InputError(
                        f"computations[{index}] reads values[{value}] ({self._name(value)}), "
                        "which is not computed before it"
                    )
            for value in computation.writes:
                base = self.values[value].base
                if base is not None and base not in computation.reads:
                    raise InputError(
                        f"computations[{index}] must read values[{base}], which it changes in place"
                    )
            present.update(computation.writes)

    def _validate_totals(self) -> None:
        if sum(each.duration for each in self.computations) >= LARGEST_TOTAL:
            raise InputError("the durations must sum to less than 2**61 ticks")
        memory = sum(value.size for value in self.values)
        memory += max(max(each.workspace, each.lean or 0) for each in self.computations)
        if memory >= LARGEST_TOTAL:
            raise InputError(f"the sizes must sum to less than 2**61 bytes, not {memory}")

    def _name(self, value: int) -> str:
        return short_repr(self.values[value].name)

    def __len__(self) -> int:
        """Return the number of computations."""
        return len(self.computations)

    def __repr__(self) -> str:
        again = sum(each.repeatable for each in self.computations)
        return (
            f"<Network: {len(self)} computations, {again} of them repeatable, "
            f"{len(self.values)} values; compute time {self.compute_time}>"
        )

    @cached_property
    def compute_time(self) -> int:
        """Ticks if every computation runs once."""
        return sum(computation.duration for computation in self.computations)

    @cached_property
    def writer(self) -> tuple[int, ...]:
        """For each value, the computation that writes it; -1 if it is there at the start."""
        writers = [-1] * len(self.values)
        for index, computation in enumerate(self.computations):
            for value in computation.writes:
                writers[value] = index
        return tuple(writers)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each value, the computations that read it, increasing."""
        rows: list[list[int]] = [[] for _ in self.values]
        for index, computation in enumerate(self.computations):
            for value in computation.reads:
                rows[value].append(index)
        return tuple(map(tuple, rows))

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """For each value, the one in whose memory it lies: itself, or the one that it changes."""
        bases = (value.base for value in self.values)
        return tuple(index if base is None else base for index, base in enumerate(bases))

    @cached_property
    def changers(self) -> dict[int, list[int]]:
        """For each value that is changed in place, the computations that do it, increasing.

        One that makes several values of it is there several times.
        """
        rows: dict[int, list[int]] = {}
        for writer, value, stored in sorted(
            zip(self.writer, range(len(self.values)), self.stored, strict=True)
        ):
            if stored != value:
                rows.setdefault(stored, []).append(writer)
        return rows

    @cached_property
    def own_memory(self) -> tuple[int, ...]:
        """For each computation, bytes of the values that it reads and writes, and its workspace.

        What it discards is counted as `Computation.lean` says where that is less: no run of it
        takes less memory than this.
        """
        return tuple(map(self._own_memory, self.computations))

    def _own_memory(self, computation: Computation) -> int:
        read = self.size_of(computation.reads)
        # What it changes in place is no memory of its own; the rest may be discarded at best.
        kept = self.size_of(computation.writes) + computation.workspace
        return read + (kept if computation.lean is None else min(kept, computation.lean))

    def size_of(self, values: Iterable[int]) -> int:
        """Return the bytes of some values together."""
        return sum(self.values[value].size for value in values)

    def trace(self) -> Trace:
        """Return the trace in which every computation runs once.

        Returns
        -------
        Trace
            Operations and tensors have the indices of the computations and values, but for those
            values that lie in the memory of others.
        """
        return self._trace

    @cached_property
    def _trace(self) -> Trace:
        once = [Run(index) for index in range(len(self))]
        return Expansion(self.computations, self.values, self.writer, {}).of(once).trace

    @cached_property
    def cumulative(self) -> tuple[int, ...]:
        """Ticks before each computation, and after the last one, if every one runs once."""
        return tuple(accumulate((each.duration for each in self.computations), initial=0))


def sources(network: Network) -> Sequence[int]:
    """Return the values that are there at the start, and that somebody reads.

    What nobody reads is not there in any execution: it may be given up before anything runs.
    """
    written = zip(network.writer, network.readers, strict=True)
    return [value for value, (writer, readers) in enumerate(written) if writer < 0 and readers]
