"""Labels, and a joint problem for a search over them, as masks of contents.

A *content* is a value in one state of its changes in place. Of a value that is still to be changed
there are two contents: a copy that may be changed, and a *settled* one, that has left since it was
written, or is not the one that is changed. Masks are integers with a bit a content.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from offcert.core.computations import Computation, Value
from offcert.core.network import Network, sources
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem, Recompute

# A value, how many computations have changed it in place, and whether it cannot be changed again.
Content = tuple[int, int, bool]
# The mark of no content and no computation. By definition.
NOTHING = -1


class OpenRun(NamedTuple):
    """A run under way: what it may not lose, what of that it makes, and its workspace."""

    computation: int = NOTHING
    busy: int = 0
    fresh: int = 0
    workspace: int = 0


IDLE = OpenRun()


class Label(NamedTuple):
    """A beginning of an execution, at a moment."""

    time: int  # Ticks.
    stage: int  # Kind of decisions that are still open at this moment.
    frontier: int  # First runs that have begun.
    # Contents that are there; those that are being made are on the device.
    device: int
    host: int
    pinned: int  # Contents that have come back and have not been read since.
    running: OpenRun  # The run under way, until `run_end`.
    run_end: int
    # Contents under way, until `left_at` and `back_at`.
    leaving: int
    left_at: int
    coming: int
    back_at: int
    latest: OpenRun = IDLE  # The run that began last, also if it took no time.


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, increasing."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def run_once(trace: Trace) -> Network:
    """Return a trace as a network: each operation computes its tensors, and may not run again."""
    reads: list[list[int]] = [[] for _ in trace.operations]
    writes: list[list[int]] = [[] for _ in trace.operations]
    for value, tensor in enumerate(trace.tensors):
        for position, use in enumerate(tensor.uses):
            if use >= 0:
                (reads if position else writes)[use].append(value)
    computations = (
        Computation(each.name, each.duration, each.workspace, tuple(read), tuple(written), False)
        for each, read, written in zip(trace.operations, reads, writes, strict=True)
    )
    return Network(computations, (Value(t.name, t.size, t.evictable) for t in trace.tensors))


@dataclass(frozen=True)
class Mode:
    """A way to run a computation: what it keeps of what it writes, and its workspace."""

    kept: int
    workspace: int


class JointModel:
    """A problem's numbers, by content and by computation.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    timeless : bool
        Whether every run and every transfer takes no time, to see what can be executed at all.

    Attributes
    ----------
    once : Trace or None
        What is executed, if nothing may run again.
    platform : Platform or None
        Of the problem; None if nothing takes time.
    sizes : list of int
        Bytes of each content.
    leaves : int
        Contents that may leave the device.
    settled : list of int
        For each content, what returns of it once it has left: itself, or the settled one.
    reads : list of list of int
        For each computation, what it reads: masks of the contents that will do.
    changes : list of list of (int, int)
        For each computation, the contents that it changes in place, and what becomes of them.
    writes : list of int
        For each computation, the contents that it makes.
    stays : list of int
        For each number of first runs that have begun, contents that may not be given up before the
        next one begins.
    """

    def __init__(self, problem: Problem, timeless: bool = False) -> None:
        self.once = problem.trace if problem.recompute is Recompute.NONE else None
        network = problem.computed if self.once is None else run_once(self.once)
        assert network is not None
        self.network: Network = network
        self.simplex = not problem.platform.duplex
        self.platform = None if timeless else problem.platform
        self.durations = [0 if timeless else each.duration for each in network.computations]
        self.repeatable = [each.repeatable for each in network.computations]
        self._changers = [network.changers.get(value, []) for value in range(len(network.values))]
        self.contents = list(self._contents())
        self.number = {content: index for index, content in enumerate(self.contents)}
        self.sizes = [network.values[value].size for value, _, _ in self.contents]
        self._fill_links(problem, timeless)
        self.reads: list[list[int]] = []
        self.changes: list[list[tuple[int, int]]] = []
        self.writes: list[int] = []
        for computation in range(len(network)):
            self._fill_computation(computation)
        self.start = sum(1 << self.number[value, 0, False] for value in self._at_start())
        self.empty = sum(1 << index for index, size in enumerate(self.sizes) if not size)
        self.modes = [self._modes(computation) for computation in range(len(network))]
        self.stays = self._stays() if self.once else [0] * (len(network) + 1)
        self._totals: dict[int, int] = {0: 0}

    def _at_start(self) -> Iterator[int]:
        for value in sources(self.network):
            if self.network.values[value].base is None:
                yield value

    def _contents(self) -> Iterator[Content]:
        for value, each in enumerate(self.network.values):
            if each.base is not None:
                continue
            last = len(self._changers[value])
            for changes in sorted({0, *(self._level(value, c) for c in self._changers[value])}):
                yield value, changes, False
                if each.evictable and changes < last:
                    yield value, changes, True
            if last:
                yield value, last, False

    def _level(self, value: int, computation: int) -> int:
        """Return how many changes of a value come before a computation in the program."""
        return sum(changer < computation for changer in self._changers[value])

    def _fill_links(self, problem: Problem, timeless: bool) -> None:
        values, platform = self.network.values, problem.platform
        self.leaves = 0
        self.settled = list(range(len(self.contents)))
        self.ticks = {kind: [0] * len(self.contents) for kind in Kind}
        for index, (value, changes, _) in enumerate(self.contents):
            self.settled[index] = self.number.get((value, changes, True), index)
            if not problem.offload or not values[value].evictable or not self.sizes[index]:
                continue
            self.leaves |= 1 << index
            for kind in Kind:
                if not timeless:
                    self.ticks[kind][index] = platform.transfer_time(self.sizes[index], kind)

    def _fill_computation(self, computation: int) -> None:
        each, values = self.network.computations[computation], self.network.values
        changed = {base for v in each.writes if (base := values[v].base) is not None}
        self.changes.append(
            [
                (self.number[v, level, False], self.number[v, level + times, False])
                for v in sorted(changed)
                for level in [self._level(v, computation)]
                for times in [self._changers[v].count(computation)]
            ]
        )
        stored = {self.network.stored[v] for v in each.reads}
        self.reads.append([self._read(v, computation) for v in sorted(stored - changed)])
        own = (v for v in each.writes if values[v].base is None)
        self.writes.append(sum(1 << self.number[v, 0, False] for v in own))

    def _read(self, value: int, computation: int) -> int:
        level = self._level(value, computation)
        alike = (self.number.get((value, level, settled)) for settled in (False, True))
        return sum(1 << content for content in alike if content is not None)

    def _modes(self, computation: int) -> list[Mode]:
        """Return the sets of results a run may keep: all, or, where leaner, any part of them."""
        each, own = self.network.computations[computation], self.writes[computation]
        modes = [Mode(own, each.workspace)]
        if each.lean is not None:
            part = own
            while part:
                part = (part - 1) & own
                modes.append(Mode(part, each.lean))
        return modes

    def _stays(self) -> list[int]:
        """Return, for each number of runs that have begun, what the last and the next one use.

        Where nothing runs again these are neighbours, and a tensor that both use has no gap between
        them.
        """
        uses = [sum(reads) | writes for reads, writes in zip(self.reads, self.writes, strict=True)]
        return [0, *(before & after for before, after in pairwise(uses)), 0]

    @cached_property
    def makers(self) -> list[int]:
        """For each content, the computation whose run brings it about; -1 for a source."""
        return [
            self._changers[value][changes - 1] if changes else self.network.writer[value]
            for value, changes, _ in self.contents
        ]

    @cached_property
    def needs(self) -> list[list[int]]:
        """For each computation, what it reads or changes: masks of the contents that will do."""
        return [
            [*reads, *(self.changeable(before) for before, _ in changes)]
            for reads, changes in zip(self.reads, self.changes, strict=True)
        ]

    def changeable(self, content: int) -> int:
        """Return the contents that a run which changes a content can take for it: a mask.

        Empty values do not leave, so more than one copy may be changed.
        """
        return 1 << content | (0 if self.sizes[content] else 1 << self.settled[content])

    @cached_property
    def remaining(self) -> list[int]:
        """Ticks of all first runs from each computation on, and after the last one."""
        sums = [0]
        for duration in reversed(self.durations):
            sums.append(sums[-1] + duration)
        return sums[::-1]

    @cached_property
    def useful(self) -> list[int]:
        """For each number of first runs that are over, the contents that may still be read."""
        return [self._useful(frontier) for frontier in range(len(self.network) + 1)]

    @cached_property
    def hosted(self) -> list[int]:
        """The same on the host: what left before a change in place counts in later states, too."""
        found = []
        for useful in self.useful:
            latest: dict[int, int] = {}
            for value, changes, _ in map(self.contents.__getitem__, bits(useful)):
                latest[value] = max(changes, latest.get(value, 0))
            earlier = (
                1 << index
                for index, (value, changes, _) in enumerate(self.contents)
                if changes < latest.get(value, 0) and not useful >> index & 1
            )
            found.append(useful | sum(earlier))
        return found

    def _useful(self, frontier: int) -> int:
        found = 0
        waiting = list(range(frontier, len(self.network)))
        seen = set(waiting)
        while waiting:
            for mask in self.needs[waiting.pop()]:
                found |= mask
                for content in bits(mask):
                    maker = self.makers[content]
                    if maker >= 0 and maker not in seen and self.repeatable[maker]:
                        seen.add(maker)
                        waiting.append(maker)
        return found

    def total(self, mask: int) -> int:
        """Return the bytes of some contents."""
        found = self._totals.get(mask)
        if found is None:
            low = mask & -mask
            found = self.sizes[low.bit_length() - 1] + self.total(mask ^ low)
            self._totals[mask] = found
        return found

    def at_least(self, frontier: int, available: int) -> int | None:
        """Return the ticks that runs still take at least, or None if something is lost for good.

        All first runs that are missing, and one run of whatever makes what is neither on the device
        nor on the host, but is read by one of these.
        """
        ticks = self.remaining[frontier]
        waiting = list(range(frontier, len(self.network)))
        seen = set(waiting)
        while waiting:
            for mask in self.needs[waiting.pop()]:
                if mask & available:
                    continue
                maker = self.makers[(mask & -mask).bit_length() - 1]
                if maker in seen:
                    continue
                if maker < 0 or not self.repeatable[maker]:
                    return None
                seen.add(maker)
                waiting.append(maker)
                ticks += self.durations[maker]
        return ticks

    def largest(self, given: int, room: int) -> list[int]:
        """Return the sets of contents that fit and to which none that is given can be added."""
        if room < 0:
            return []
        if self.total(given) <= room:
            return [given]
        free = given & self.empty
        dear = sorted(bits(given & ~free), key=lambda content: -self.sizes[content])
        found: list[int] = []

        def choose(position: int, chosen: int, left: int, least_left_out: int) -> None:
            if position == len(dear):
                if least_left_out > left:
                    found.append(chosen)
                return
            content = dear[position]
            size = self.sizes[content]
            if size <= left:
                choose(position + 1, chosen | 1 << content, left - size, least_left_out)
            choose(position + 1, chosen, left, min(least_left_out, size))

        choose(0, free, room, room + 1)
        return found
