"""Values and computations of a network, and the trace that runs of them make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.trace import Operation, Tensor, Trace


@dataclass(frozen=True, slots=True)
class Value:
    """A value: computed once or more often, it takes memory while it is kept.

    Attributes
    ----------
    name : str
        Name for people.
    size : int
        Bytes.
    evictable : bool
        Whether it may leave the device between two uses.
    base : int or None
        Index of the value in whose memory it lies: it is what an in-place change made of that one,
        takes no memory of its own, and is lost with it.
    """

    name: str
    size: int
    evictable: bool = True
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Computation:
    """A computation, which runs once or, if repeatable, as often as a strategy wants.

    Attributes
    ----------
    name : str
        Name for people.
    duration : int
        Ticks of a run, at least 0.
    workspace : int
        Bytes that a run takes beside what it reads and writes.
    reads : tuple of int
        Indices of the values that it needs, increasing.
    writes : tuple of int
        Indices of the values that it makes, increasing. A value has one writer, or none: then it is
        there at the start.
    repeatable : bool
        Whether it may run again. Gradients are computed once.
    holds : tuple of int
        Values that the program keeps on the device meanwhile without reading them, if they are
        there. Running the program respects that; no bound may count on it.
    lean : int or None
        Bytes of workspace of a run that discards what it writes, in part or whole; by default the
        workspace, and what is discarded.
    of : tuple of int
        Of a backward computation: those whose gradients it computes, as far as that is known. What
        it reads was saved by these.
    """

    name: str
    duration: int
    workspace: int = 0
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    repeatable: bool = True
    holds: tuple[int, ...] = ()
    lean: int | None = None
    of: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a computation.

    Attributes
    ----------
    computation : int
        Index into ``network.computations``.
    discards : tuple of int
        Values that it writes and nobody keeps.
    """

    computation: int
    discards: tuple[int, ...] = ()


def held_to_the_end(computations: Iterable[Computation]) -> frozenset[int]:
    """Return the values that the program holds when what cannot run again has begun."""
    late = (each.holds for each in computations if not each.repeatable)
    return frozenset(value for holds in late for value in holds)


@dataclass(slots=True)
class _Copy:
    """One copy of a value: becomes a tensor."""

    value: int
    uses: list[int]
    # Until here it may still be changed in place, so that a copy elsewhere would be of no use.
    settled: int


class Expansion:
    """Operations and tensors of a sequence of runs: a tensor for every copy of a value.

    Parameters
    ----------
    computations : sequence of Computation
        Of a network.
    values : sequence of Value
        Of the network.
    writer : sequence of int
        For each value, the computation that writes it, or -1.
    within : mapping of int to range
        See `offcert.core.strategy.Strategy.expand`.
    """

    def __init__(
        self,
        computations: Sequence[Computation],
        values: Sequence[Value],
        writer: Sequence[int],
        within: Mapping[int, range],
    ) -> None:
        self.computations = computations
        self.values = values
        self.within = within
        self.lasting = held_to_the_end(computations) if within else frozenset()
        self.copies: list[_Copy] = []
        self.there: dict[int, _Copy] = {}
        self.operations: list[Operation] = []
        self.counts = [0] * len(computations)
        self.writer = writer
        # The states of each value that is changed in place.
        self.changed: dict[int, list[int]] = {}
        for index, value in enumerate(values):
            if value.base is not None:
                self.changed.setdefault(value.base, []).append(index)
        for index, computation in enumerate(writer):
            if computation < 0 and values[index].base is None:
                self._keep(index, -1)

    def of(self, runs: Sequence[Run]) -> Execution:
        """Return the execution of some runs, in their order."""
        for position, run in enumerate(runs):
            self._run(position, run)
        tensors = [self._tensor(copy) for copy in self.copies]
        values = tuple(copy.value for copy in self.copies if copy.uses != [-1])
        trace = Trace(self.operations, [tensor for tensor in tensors if tensor is not None])
        return Execution(trace, tuple(run.computation for run in runs), values)

    def _run(self, position: int, run: Run) -> None:
        values = self.values
        if not 0 <= run.computation < len(self.computations):
            raise InputError(
                f"runs[{position}] names computation {run.computation}, of which "
                f"there are {len(self.computations)}"
            )
        computation = self.computations[run.computation]
        for value in computation.reads:
            if value not in self.there:
                raise InputError(
                    f"runs[{position}] ({computation.name}) reads {values[value].name}, "
                    "which is not there"
                )
            self._use(value, position)
        for value in computation.holds:
            if value in self.there and self._is_held(value, position):
                self._use(value, position)
        own = {value for value in computation.writes if values[value].base is None}
        extra = set(run.discards) - own
        if extra:
            raise InputError(
                f"runs[{position}] discards value {min(extra)}, which it does not write, or which "
                "lies in the memory of another"
            )
        for value in computation.writes:
            if value not in run.discards:
                self._write(value, position)
        workspace = computation.workspace
        if run.discards:
            beside = sum(values[value].size for value in run.discards)
            workspace = workspace + beside if computation.lean is None else computation.lean
        self.operations.append(
            Operation(self._name(run.computation), computation.duration, workspace)
        )

    def _name(self, computation: int) -> str:
        self.counts[computation] += 1
        count = self.counts[computation]
        name = self.computations[computation].name
        return name if count == 1 else f"{name} (run {count})"

    def _is_held(self, value: int, position: int) -> bool:
        part = self.within.get(position)
        return part is None or self.writer[value] in part or value in self.lasting

    def _use(self, value: int, position: int) -> None:
        copy = self.there[value]
        if copy.uses[-1] != position:
            copy.uses.append(position)

    def _write(self, value: int, position: int) -> None:
        base = self.values[value].base
        if base is None:
            # What was made of the copy before is lost with it.
            for other in self.changed.get(value, ()):
                self.there.pop(other, None)
            self._keep(value, position)
        else:
            self.there[value] = self.there[base]
            self.there[base].settled = position

    def _keep(self, value: int, position: int) -> None:
        copy = _Copy(value, [position], position)
        self.copies.append(copy)
        self.there[value] = copy

    def _tensor(self, copy: _Copy) -> Tensor | None:
        if copy.uses == [-1]:
            return None
        value = self.values[copy.value]
        first, last = copy.uses[0], copy.uses[-1]
        # What cannot leave is there from its first use to its last one, whatever lies between.
        uses = sorted(
            {*copy.uses, *range(first, copy.settled + 1)} if value.evictable else {first, last}
        )
        return Tensor(value.name, value.size, tuple(uses), value.evictable)
