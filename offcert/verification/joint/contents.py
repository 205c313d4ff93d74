"""Contents of the device that an execution can have, and what computations take and make of them.

Written from the definition of executions and schedules alone (docs/theory/joint-labels.md), and
independently of the search that finds such bounds. What memory holds is told apart by its value, by
how many computations have changed it in place, and, as long as more of these are to come, by
whether it may still be changed: a *spare* copy may not, because it has been on the host, or because
it is the other one that is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem, Recompute

# Sets of contents are integers: one bit each.
Held = int


@dataclass(frozen=True)
class Content:
    """One thing that memory can hold."""

    size: int  # Bytes
    # The computation that writes it, or changes the content before it; -1 if it is there at the
    # start.
    maker: int
    movable: bool  # Whether it may leave the device
    # Ticks of its transfers.
    out: int
    back: int
    # The number of the content with the same bytes that may not be changed; its own number if there
    # is none.
    spare: int


@dataclass(frozen=True)
class Work:
    """The values that one computation takes and makes."""

    ticks: int  # Duration of a run
    again: bool  # Whether it may run more than once
    reads: tuple[tuple[int, ...], ...]  # For each value, the contents of which one has to be there
    # Contents that it changes in place, each with the content that results.
    changes: tuple[tuple[int, int], ...]
    # Contents that it may keep of those it writes, with the bytes of workspace that this takes.
    ways: tuple[tuple[Held, int], ...]


class Contents:
    """The contents that memory can have, and what every computation does with them.

    Without `timed`, runs and transfers take no time, and the question is whether they can be made.
    Transfers are atomic, or nothing leaves.
    """

    def __init__(self, problem: Problem, timed: bool = True) -> None:
        trace = problem.trace if problem.recompute is Recompute.NONE else None
        network = problem.computed if trace is None else _of_trace(trace)
        assert network is not None
        self.problem, self.network, self.timed = problem, network, timed
        self.one_way = not problem.platform.duplex
        self.each: list[Content] = []
        self._places: dict[tuple[int, int, bool], int] = {}
        for value, item in enumerate(network.values):
            if item.base is None:
                self._add_states(value)
        self.work = [self._work(computation) for computation in range(len(network))]
        self.start = 0
        for value, writer in enumerate(network.writer):
            if writer < 0 and network.values[value].base is None and network.readers[value]:
                self.start |= 1 << self._places[value, 0, False]
        self.lasting = [0] * (len(network) + 1)
        if trace is not None:
            # Between two uses one after the other a tensor has no gap.
            for place, tensor in enumerate(trace.tensors):
                for use in set(tensor.uses).intersection(each - 1 for each in tensor.uses):
                    self.lasting[use + 1] |= 1 << place
        self.size_of = cache(self._size_of)
        self.first_runs = cache(self._first_runs)
        self.wanted = cache(self._wanted)
        self.wanted_there = cache(self._wanted_there)
        self.least_left = cache(self._least_left)

    def _changes_of(self, value: int) -> list[int]:
        """Return the computations that change a value in place, one entry a change, in order."""
        network: Network = self.network
        return sorted(
            network.writer[other] for other, item in enumerate(network.values) if item.base == value
        )

    def _add_states(self, value: int) -> None:
        item, platform = self.network.values[value], self.problem.platform
        changes = self._changes_of(value)
        movable = self.problem.offload and item.evictable and item.size > 0
        out, back = (
            platform.transfer_time(item.size, kind) if movable and self.timed else 0
            for kind in (Kind.OFFLOAD, Kind.PREFETCH)
        )
        for count in range(len(changes) + 1):
            maker = changes[count - 1] if count else self.network.writer[value]
            number = len(self.each)
            self._places[value, count, False] = number
            # Two copies of what is to be changed: only of one that can be out of use meanwhile.
            two = count < len(changes) and item.evictable
            spare = number + 1 if two else number
            self.each.append(Content(item.size, maker, movable, out, back, spare))
            if two:
                self._places[value, count, True] = spare
                self.each.append(Content(item.size, maker, movable, out, back, spare))

    def _work(self, computation: int) -> Work:
        item, values = self.network.computations[computation], self.network.values
        stored = {value if (b := values[value].base) is None else b for value in item.reads}
        changed = {b for value in item.writes if (b := values[value].base) is not None}
        reads, changes = [], []
        for value in sorted(stored | changed):
            all_changes = self._changes_of(value)
            before = sum(changer < computation for changer in all_changes)
            after = before + all_changes.count(computation)
            if value in changed:
                places = self._places
                changes.append((places[value, before, False], places[value, after, False]))
            else:
                alike = (self._places.get((value, before, spare)) for spare in (False, True))
                reads.append(tuple(place for place in alike if place is not None))
        own = [self._places[v, 0, False] for v in item.writes if values[v].base is None]
        ways = [(_held(own), item.workspace)]
        if item.lean is not None:
            for chosen in range(2 ** len(own) - 1):
                kept = [place for bit, place in enumerate(own) if chosen >> bit & 1]
                ways.append((_held(kept), item.lean))
        ticks = item.duration if self.timed else 0
        return Work(ticks, item.repeatable, tuple(reads), tuple(changes), tuple(ways))

    @cached_property
    def _needs(self) -> list[list[tuple[int, ...]]]:
        """For each computation, the contents of which one of each has to be there."""
        return [
            [*work.reads, *(self.to_change(before) for before, _ in work.changes)]
            for work in self.work
        ]

    def to_change(self, content: int) -> tuple[int, ...]:
        """Return the contents of which one has to be there for a run that changes it in place.

        An empty value never leaves, so that any of its copies may be changed.
        """
        item = self.each[content]
        return (content,) if item.size else tuple({content, item.spare})

    def _size_of(self, held: Held) -> int:
        return sum(item.size for place, item in enumerate(self.each) if held >> place & 1)

    def _first_runs(self, begun: int) -> int:
        return sum(work.ticks for work in self.work[begun:])

    def _wanted(self, begun: int) -> Held:
        """Return the contents that some run may still read when so many first runs have begun."""
        found, runs = 0, set(range(begun, len(self.work)))
        grown = True
        while grown:
            found = _held(place for run in runs for alike in self._needs[run] for place in alike)
            makers = {item.maker for place, item in enumerate(self.each) if found >> place & 1}
            more = {run for run in makers if run >= 0 and self.work[run].again} - runs
            runs |= more
            grown = bool(more)
        return found

    def _wanted_there(self, begun: int) -> Held:
        """Return the contents of which a copy on the host may still be read.

        A copy that has left and is changed afterwards counts in its later states, too.
        """
        found = self.wanted(begun)
        for (value, count, _), place in self._places.items():
            if any(
                found >> other & 1
                for (same, later, _), other in self._places.items()
                if same == value and later > count
            ):
                found |= 1 << place
        return found

    def _least_left(self, begun: int, somewhere: Held) -> int | None:
        """Return the ticks that are still to be computed at least, or None if that is impossible.

        Every computation that has not begun runs, and so does, once more, whatever makes a content
        that one of these reads and that is nowhere.
        """
        runs = set(range(begun, len(self.work)))
        grown = True
        while grown:
            missing = {
                self.each[alike[0]].maker
                for run in runs
                for alike in self._needs[run]
                if not somewhere & _held(alike)
            } - runs
            if any(run < 0 or not self.work[run].again for run in missing):
                return None
            runs |= missing
            grown = bool(missing)
        return sum(self.work[run].ticks for run in runs)


def _of_trace(trace: Trace) -> Network:
    """Return the network of the operations of a trace, none of which may run again."""
    return Network(
        (
            Computation(
                operation.name,
                operation.duration,
                operation.workspace,
                reads=tuple(v for v, tensor in enumerate(trace.tensors) if use in tensor.uses[1:]),
                writes=tuple(v for v, tensor in enumerate(trace.tensors) if use == tensor.uses[0]),
                repeatable=False,
            )
            for use, operation in enumerate(trace.operations)
        ),
        (Value(tensor.name, tensor.size, tensor.evictable) for tensor in trace.tensors),
    )


def _held(places: Iterable[int]) -> Held:
    held = 0
    for place in places:
        held |= 1 << place
    return held
