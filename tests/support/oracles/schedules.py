"""Brute force: the optimum over every set, order and interleaving of transfers, for tiny problems.

It shares no code with the simulator, the checker or any solver; of `offcert` it reads the problem's
numbers only (durations, workspaces, sizes, uses, memory, bandwidth, link).

Every schedule is a sequence of actions sorted by start: an operation starts, a tensor's offload
starts, a gap's prefetch starts; whether a gap is evicted is decided when its tensor's offload and
the operation that opens it have both been placed. Executing that sequence, each action as early as
the actions before it allow, starts nothing later than the schedule did: claims (operations and
prefetches take memory) keep their order, releases only become earlier, and between claims memory
only falls. So searching all sequences, each executed that way, finds the optimum. Two partial
sequences that have placed the same actions differ in times only; one that is later in nothing
dominates.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count, product

from offcert.questions.schedule.problem import Problem

PRESENT, OUT, BACK = range(3)


@dataclass(frozen=True)
class _Gap:
    tensor: int
    opened: int
    closed: int
    size: int
    out_time: int
    in_time: int


@dataclass(frozen=True)
class _State:
    """What has been placed, and when.

    ``written`` and ``copied`` are indexed by tensor (end of the writer, end of the offload, None if
    not placed); ``status``, ``release`` and ``back`` by gap.
    """

    placed: int
    status: tuple[int, ...]
    copied: tuple[int | None, ...]
    claim: int
    device: int
    link_out: int
    link_in: int
    written: tuple[int, ...]
    ended: tuple[int, ...]
    release: tuple[int, ...]
    back: tuple[int, ...]


class _Search:
    def __init__(self, problem: Problem, ordered: bool) -> None:
        trace = problem.trace
        outwards = problem.platform.bandwidth
        inwards = problem.platform.prefetch_bandwidth or outwards
        self.memory = problem.platform.memory
        self.simplex = problem.platform.link.value == "simplex"
        self.ordered = ordered
        self.durations = [operation.duration for operation in trace.operations]
        self.count = len(self.durations)
        self.tensors = trace.tensors
        self.writer = [tensor.uses[0] for tensor in trace.tensors]
        self.gaps = []
        for index, tensor in enumerate(trace.tensors):
            if tensor.evictable and tensor.size > 0:
                ticks = [
                    -((-tensor.size * rate.denominator) // rate.numerator)
                    for rate in (outwards, inwards)
                ]
                for use, following in zip(tensor.uses, tensor.uses[1:], strict=False):
                    if following > use + 1:
                        self.gaps.append(_Gap(index, use, following, tensor.size, *ticks))
        self.during = [
            operation.workspace
            + sum(t.size for t in trace.tensors if t.uses[0] <= index <= t.uses[-1])
            for index, operation in enumerate(trace.operations)
        ]
        self.idle_before = [
            sum(t.size for t in trace.tensors if t.uses[0] < index <= t.uses[-1])
            for index in range(self.count)
        ]
        self.remaining = [sum(self.durations[index:]) for index in range(self.count + 1)]

    def run(self) -> int | None:
        if self.idle_before[0] > self.memory:
            return None
        gaps, tensors = len(self.gaps), len(self.tensors)
        nowhere = (0,) * gaps
        start = _State(
            0, (PRESENT,) * gaps, (None,) * tensors, 0, 0, 0, 0, (0,) * tensors, (0,) * gaps,
            nowhere, nowhere,
        )  # fmt: skip
        order = count()
        heap = [(self._bound(start), 0, next(order), start)]
        seen: dict[tuple[object, ...], list[tuple[int, ...]]] = {}
        while heap:
            bound, _, _, state = heapq.heappop(heap)
            if state.placed == self.count:
                return bound
            if self._dominated(state, seen):
                continue
            for child in self._children(state):
                heapq.heappush(heap, (self._bound(child), -child.placed, next(order), child))
        return None

    def _bound(self, state: _State) -> int:
        """Time still needed at least: the remaining operations, or the way back of what is out."""
        out = [gap for gap, status in zip(self.gaps, state.status, strict=True) if status == OUT]
        link = state.link_in + sum(gap.in_time for gap in out)
        last = max((gap.closed for gap in out), default=self.count)
        device = max(state.claim, state.device)
        return max(device + self.remaining[state.placed], link + self.remaining[last] if out else 0)

    def _dominated(
        self, state: _State, seen: dict[tuple[object, ...], list[tuple[int, ...]]]
    ) -> bool:
        """Whether a state with the same actions placed is later in nothing; remember it if not.

        Times that cannot delay anything any more count as 0: two states may differ in them.
        """
        key = (state.placed, state.status, tuple(end is None for end in state.copied))
        now = max(state.claim, state.device)
        times = [state.claim, state.device, state.link_out, state.link_in]
        times += [
            written if end is None and written > state.link_out else 0
            for written, end in zip(state.written, state.copied, strict=True)
        ]
        later = {gap.tensor for gap in self.gaps if gap.opened >= state.placed}
        times += [end or 0 for tensor, end in enumerate(state.copied) if tensor in later]
        for index, status in enumerate(state.status):
            late = state.release[index] > state.claim
            times.append(state.release[index] if status == OUT and late else 0)
            times.append(state.back[index] if status == BACK and state.back[index] > now else 0)
            undecided = state.copied[self.gaps[index].tensor] is None
            opened = state.ended[index] > state.claim
            times.append(state.ended[index] if undecided and opened else 0)
        vector = tuple(times)
        known = seen.setdefault(key, [])
        if any(all(a <= b for a, b in zip(other, vector, strict=True)) for other in known):
            return True
        known[:] = [
            other for other in known if not all(b <= a for a, b in zip(other, vector, strict=True))
        ]
        known.append(vector)
        return False

    def _children(self, state: _State) -> Iterator[_State]:
        yield from self._start_operation(state)
        returned = any(status == BACK for status in state.status)
        if not (self.ordered and returned):
            for tensor, end in enumerate(state.copied):
                if end is None and self.writer[tensor] < state.placed:
                    yield from self._offload(state, tensor)
        for index, status in enumerate(state.status):
            if status == OUT:
                yield from self._prefetch(state, index)

    def _start_operation(self, state: _State) -> Iterator[_State]:
        operation = state.placed
        earliest = max(state.claim, state.device)
        for index, gap in enumerate(self.gaps):
            if gap.closed == operation and state.status[index] == OUT:
                return
            if gap.closed == operation and state.status[index] == BACK:
                earliest = max(earliest, state.back[index])
        start = self._fits(state, earliest, self.during[operation])
        if start is None:
            return
        end = start + self.durations[operation]
        opened = [i for i, gap in enumerate(self.gaps) if gap.opened == operation]
        copied = [i for i in opened if state.copied[self.gaps[i].tensor] is not None]
        base = replace(
            state,
            placed=operation + 1,
            claim=start,
            device=end,
            written=tuple(
                end if self.writer[tensor] == operation else time
                for tensor, time in enumerate(state.written)
            ),
            ended=tuple(end if i in opened else time for i, time in enumerate(state.ended)),
        )
        for choice in product((False, True), repeat=len(copied)):
            yield self._evict(base, [i for i, out in zip(copied, choice, strict=True) if out])

    def _offload(self, state: _State, tensor: int) -> Iterator[_State]:
        ahead = [
            i
            for i, gap in enumerate(self.gaps)
            if gap.tensor == tensor and gap.closed >= state.placed
        ]
        if not ahead:
            return
        end = max(state.link_out, state.written[tensor]) + self.gaps[ahead[0]].out_time
        base = replace(
            state,
            copied=tuple(end if i == tensor else time for i, time in enumerate(state.copied)),
            link_out=end,
            link_in=end if self.simplex else state.link_in,
        )
        if self.gaps[ahead[0]].opened < state.placed:
            yield self._evict(base, ahead[:1])
        if len(ahead) > 1 or self.gaps[ahead[0]].opened >= state.placed:
            yield base

    def _evict(self, state: _State, gaps: list[int]) -> _State:
        status, release = list(state.status), list(state.release)
        for index in gaps:
            end = state.copied[self.gaps[index].tensor]
            assert end is not None
            status[index] = OUT
            release[index] = max(end, state.ended[index])
        return replace(state, status=tuple(status), release=tuple(release))

    def _prefetch(self, state: _State, index: int) -> Iterator[_State]:
        gap = self.gaps[index]
        earliest = max(state.claim, state.link_in, state.release[index])
        start = None
        if state.placed > 0 and earliest < state.device:
            start = self._fits(state, earliest, self.during[state.placed - 1], index)
            if start is not None and start >= state.device:
                start = None
        if start is None:
            live = self.idle_before[state.placed]
            start = self._fits(state, max(earliest, state.device), live, index)
        if start is None:
            return
        status, back = list(state.status), list(state.back)
        status[index] = BACK
        back[index] = start + gap.in_time
        yield replace(
            state,
            claim=start,
            link_in=back[index],
            link_out=back[index] if self.simplex else state.link_out,
            status=tuple(status),
            back=tuple(back),
        )

    def _fits(
        self, state: _State, earliest: int, occupied: int, returning: int | None = None
    ) -> int | None:
        """Return the first time from `earliest` on at which enough of what is out has left.

        `occupied` counts everything as present; `returning` is a gap that is about to be back.
        """
        out = [
            index
            for index, status in enumerate(state.status)
            if status == OUT and index != returning
        ]
        for time in sorted({earliest} | {state.release[index] for index in out}):
            if time >= earliest:
                absent = sum(self.gaps[i].size for i in out if state.release[i] <= time)
                if occupied - absent <= self.memory:
                    return time
        return None


def brute_force(problem: Problem, *, ordered: bool = False) -> int | None:
    """Return the least makespan of any atomic schedule, or None if there is none.

    Parameters
    ----------
    problem : Problem
        Tiny: up to about five stages.
    ordered : bool
        Whether every offload must come before every prefetch on the link.
    """
    try:
        return _least_makespan(problem, ordered)
    except TypeError:
        # What a problem comes from may be a mapping, which has no hash.
        return _Search(problem, ordered).run()


# Tests of one idea after another draw the same problems.
@lru_cache(maxsize=4096)
def _least_makespan(problem: Problem, ordered: bool) -> int | None:
    return _Search(problem, ordered).run()


@dataclass(frozen=True)
class Times:
    """A schedule: start and end of each operation, offload (by tensor) and prefetch (by gap)."""

    operations: tuple[tuple[int, int], ...]
    offloads: dict[int, tuple[int, int]]
    prefetches: dict[tuple[int, int, int], tuple[int, int]]


def every_schedule(problem: Problem) -> Iterator[Times]:
    """Yield every atomic schedule in which everything starts as early as its order allows.

    A gap is evicted where it has a prefetch; gaps are named by tensor, use and next use.
    """
    search = _Search(problem, ordered=False)
    gaps, tensors = len(search.gaps), len(search.tensors)
    nowhere = (0,) * gaps
    start = _State(
        0, (PRESENT,) * gaps, (None,) * tensors, 0, 0, 0, 0, (0,) * tensors, (0,) * gaps,
        nowhere, nowhere,
    )  # fmt: skip
    if search.idle_before and search.idle_before[0] > search.memory:
        return
    stack: list[tuple[_State, tuple[tuple[int, int], ...]]] = [(start, ())]
    while stack:
        state, operations = stack.pop()
        if state.placed == search.count:
            yield _times(search, state, operations)
            continue
        for child in search._children(state):
            placed = child.placed > state.placed
            ran = ((child.claim, child.device),) if placed else ()
            stack.append((child, operations + ran))


def _times(search: _Search, state: _State, operations: tuple[tuple[int, int], ...]) -> Times:
    back = {
        (gap.tensor, gap.opened, gap.closed): (end - gap.in_time, end)
        for gap, status, end in zip(search.gaps, state.status, state.back, strict=True)
        if status == BACK
    }
    evicted = {tensor for tensor, _, _ in back}
    length = {gap.tensor: gap.out_time for gap in search.gaps}
    out = {
        tensor: (end - length[tensor], end)
        for tensor, end in enumerate(state.copied)
        if end is not None and tensor in evicted
    }
    return Times(operations, out, back)
