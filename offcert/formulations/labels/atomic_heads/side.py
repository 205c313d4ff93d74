"""One side of an operation: all that leaves before it, or (in reversed time) returns after it.

Fix an operation, the *pivot*. Before it can start, its required bytes must have left, tensor by
tensor; after it has started, they must come back, which in reversed time is the same problem: a
prefetch of a gap is then a transfer after which memory is free. A side lists the operations that
run in its time, what must be absent during each, and the tensors that may be absent during the
pivot, in classes of equal size. How the problem is relaxed to it:

- Tensors that cannot be absent during the pivot take no time on the link and are absent whenever
  they may be: `required` is lowered by their bytes.
- All others count as absent from the end of their transfer on, even while an operation uses them.
- What has left stays out. If a schedule brings something back before the pivot, leave out that
  prefetch: no operation starts later for that. Nothing else is assumed about the order of
  transfers. So prefetches before later offloads, several gaps a tensor and both kinds of link are
  covered. On the way back every gap has its own prefetch; on the way out one offload serves all
  gaps of a tensor.
- A transfer that is under way when the pivot starts helps neither side.

docs/theory/heads.md has the argument, with an example on paper.

How a side can still end, from every amount that has left, is the other half of the search. Take a
label whose link is free at ``t`` and whose idle time is ``s``, and the transfers that follow it.
The side ends at ``max(t + link, s + idle)``, where ``link`` and ``idle`` depend on these transfers
alone: every step takes the larger of two sums (it is linear in the max-plus sense). For the
relaxation in which no class is counted, all pairs ``(link, idle)`` that no other is as good as are
found for every amount, from the end to the beginning. The least end over the pairs of an amount
bounds every sequence that passes there, and one of the relaxation attains it. So the first round of
the search needs no search, and later rounds look only at what counting changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined, inner
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem

# Pairs that are kept for one amount; beyond it, two are replaced by one pair that is as good as
# both. Arbitrary.
_WIDEST = 64


@compiled
def still_missing(
    prefix: IntArray, required: IntArray, floor: IntArray, rate: IntArray, grid: int, levels: int
) -> IntArray:
    """Return, for each level, the least time from when the link is free to the end of the side.

    Parameters
    ----------
    prefix, required, floor : int64 array, shape (K+1,)
        As in `side.HeadSide`.
    rate : int64 array, shape (2,)
        Bytes and ticks.
    grid : int
        Bytes of a level.
    levels : int
        The last one.
    """
    still = np.zeros(levels + 1, np.int64)
    most = 0
    for j in range(prefix.size):
        # What an earlier operation needs as well counts there, where more time comes after it.
        if required[j] <= most:
            continue
        most = required[j]
        for level in range(min(levels, (most - 1) // grid) + 1):
            ticks = -(-(most - level * grid) * rate[1] // rate[0])
            still[level] = max(still[level], ticks - prefix[j] + floor[j])
    return still


@inlined
def put(link: IntArray, idle: IntArray, count: int, x: int, y: int) -> int:
    """Put a pair among pairs of which `link` increases and `idle` falls; return how many.

    One place of the arrays stays free. If there is no other, one pair that is as good as both takes
    the place of two.
    """
    place = 0
    while place < count and link[place] <= x:
        place += 1
    if place > 0 and idle[place - 1] <= y:
        return count
    if place > 0 and link[place - 1] == x:
        place -= 1
    beyond = place
    while beyond < count and idle[beyond] >= y:
        beyond += 1
    if beyond == place and count == link.size - 1:
        # As good as this pair and its neighbour.
        if place == count:
            idle[place - 1] = y
        else:
            link[place] = x
        return count
    kept = count - beyond
    if beyond == place:
        for index in range(count, place, -1):
            link[index], idle[index] = link[index - 1], idle[index - 1]
    else:
        for index in range(kept):
            link[place + 1 + index] = link[beyond + index]
            idle[place + 1 + index] = idle[beyond + index]
    link[place], idle[place] = x, y
    return place + 1 + kept


@inner
def _roomier(values: IntArray) -> IntArray:
    larger = np.zeros(2 * values.size, np.int64)
    for index in range(values.size):
        larger[index] = values[index]
    return larger


@compiled
def ways(
    prefix: IntArray,
    floor: IntArray,
    run: IntArray,
    still: IntArray,
    most: IntArray,
    size: IntArray,
    time: IntArray,
    ready: IntArray,
) -> tuple[IntArray, IntArray, IntArray]:
    """Return, for each level, the pairs of least times to the end, and where they begin.

    Parameters
    ----------
    prefix, floor : int64 array, shape (K+1,)
        As in `side.HeadSide`.
    run : int64 array, shape (N+1,)
        Operations that can run once a level is reached; at the last level, all.
    still : int64 array, shape (N+1,)
        From `still_missing`.
    most : int64 array, shape (K+1,)
        By number of operations run: levels of all that is ready then.
    size, time, ready : int64 array, shape (C,)
        Levels and ticks of each class, and when its first item is ready.

    Returns
    -------
    first : int64 array, shape (N+1,)
        Where the pairs of a level begin; they end where those of the level below it begin.
    link, idle : int64 array
        By how much, at least, the end of the side exceeds the time at which the link is free, and
        the idle time.
    """
    levels = run.size - 1
    first = np.zeros(levels + 1, np.int64)
    link = np.zeros(2 * levels + _WIDEST + 1, np.int64)
    idle = np.zeros(2 * levels + _WIDEST + 1, np.int64)
    idle[0] = prefix[-1]
    used = 1
    xs, ys = np.empty(_WIDEST + 1, np.int64), np.empty(_WIDEST + 1, np.int64)
    for level in range(levels - 1, -1, -1):
        k = run[level]
        count = 0
        for c in range(size.size):
            reached = level + size[c]
            if ready[c] >= k or reached > most[k]:
                continue
            reached = min(reached, levels)
            waits = run[reached] > k
            end = used if reached == level + 1 else first[reached - 1]
            for way in range(first[reached], end):
                x = time[c] + link[way]
                if waits:
                    x = max(x, time[c] - prefix[k] + idle[way])
                y = max(idle[way], prefix[ready[c] + 1] + x)
                count = put(xs, ys, count, max(x, still[level]), max(y, floor[k]))
        first[level] = used
        if used + count > link.size:
            link, idle = _roomier(link), _roomier(idle)
        for way in range(count):
            link[used + way], idle[used + way] = xs[way], ys[way]
        used += count
    return first, link[:used].copy(), idle[:used].copy()


@dataclass(frozen=True)
class Movable:
    """A tensor that may be absent during the pivot.

    Attributes
    ----------
    gap : int
        Its gap over the pivot (index into ``trace.gaps``).
    size, time : int
        Bytes, and ticks of the transfer.
    ready : int
        Operation of this side after whose end the transfer may start; -1 for at once.
    absent : tuple of bool, length K
        Whether the tensor can be absent during each operation of the side.
    """

    gap: int
    size: int
    time: int
    ready: int
    absent: tuple[bool, ...]


@dataclass(frozen=True)
class HeadSide:
    """The operations on one side of a pivot, in the side's own time.

    Attributes
    ----------
    prefix : list of int, length K+1
        Sums of the operations' durations.
    required : list of int, length K+1
        Bytes of `items` that must be absent during each operation; the last is the pivot's.
    items : list of Movable
        In the order in which they become ready.
    floor : list of int, length K+1
        ``floor[j]`` plus the idle time before operation ``j`` bounds the end of the side.
    rate : (int, int)
        Bytes and ticks of the link in this side's direction, at least as fast as it is.
    """

    prefix: list[int]
    required: list[int]
    items: list[Movable]
    floor: list[int]
    rate: tuple[int, int]

    def classes(self) -> dict[int, list[Movable]]:
        """Return the items by size, each list in the order of readiness."""
        classes: dict[int, list[Movable]] = defaultdict(list)
        for item in self.items:
            classes[item.size].append(item)
        return dict(classes)


def front(
    problem: Problem, required: Sequence[int], pivot: int, movables: Collection[int] | None = None
) -> HeadSide:
    """Return the side of the operations before `pivot`.

    Parameters
    ----------
    problem : Problem
        Atomic, any trace and link.
    required : sequence of int
        Bytes that must be absent during each operation, from ``relaxations.required_absent``.
    pivot : int
        An operation.
    movables : collection of int, optional
        Gaps whose tensors take time on the link, each of another tensor; by default those over the
        pivot.
    """
    trace = problem.trace
    movables = trace.gaps_over[pivot] if movables is None else movables
    over = {trace.gaps[gap].tensor: gap for gap in movables}
    absent = _absences(trace, range(pivot), lambda gap: trace.gaps[gap].tensor)
    items = [
        Movable(
            gap,
            trace.gap_size(gap),
            problem.platform.transfer_time(trace.gap_size(gap), Kind.OFFLOAD),
            trace.tensors[tensor].uses[0],
            tuple(absent[tensor]),
        )
        for tensor, gap in over.items()
    ]
    columns = [*range(pivot), pivot]
    return _side(
        problem, Kind.OFFLOAD, required, columns, items, lambda gap: trace.gaps[gap].tensor in over
    )


def back(
    problem: Problem, required: Sequence[int], pivot: int, movables: Collection[int] | None = None
) -> HeadSide:
    """Return the side of `pivot` and the operations after it, in reversed time; see `front`."""
    trace = problem.trace
    last = len(trace) - 1
    over = set(trace.gaps_over[pivot] if movables is None else movables)
    columns = [*range(last, pivot - 1, -1)]
    absent = _absences(trace, columns, lambda gap: gap)
    items = [
        Movable(
            gap,
            trace.gap_size(gap),
            problem.platform.transfer_time(trace.gap_size(gap), Kind.PREFETCH),
            last - trace.gaps[gap].after,
            tuple(absent[gap]),
        )
        for gap in sorted(over)
    ]
    return _side(problem, Kind.PREFETCH, required, [*columns, pivot], items, over.__contains__)


def _absences(
    trace: Trace, columns: Sequence[int], key: Callable[[int], int]
) -> dict[int, list[bool]]:
    """Return, for each tensor or gap, at which operations it may be absent."""
    absent: dict[int, list[bool]] = defaultdict(lambda: [False] * len(columns))
    for place, operation in enumerate(columns):
        for gap in trace.gaps_over[operation]:
            absent[key(gap)][place] = True
    return absent


def _side(
    problem: Problem,
    kind: Kind,
    required: Sequence[int],
    columns: Sequence[int],
    items: list[Movable],
    counts: Callable[[int], bool],
) -> HeadSide:
    """Lower required amounts by the tensors that take no time, and compute the floor."""
    trace = problem.trace
    prefix = [0]
    for operation in columns[:-1]:
        prefix.append(prefix[-1] + trace.durations[operation])
    needs = []
    for operation in columns:
        others = sum(trace.gap_size(gap) for gap in trace.gaps_over[operation] if not counts(gap))
        needs.append(max(0, required[operation] - others))
    items = sorted(items, key=lambda item: (item.ready, item.size, item.gap))
    rate = link_rate(problem.platform.rate(kind), sum(item.size for item in items) + max(needs))
    return HeadSide(prefix, needs, items, _floor(prefix, needs, items, rate), rate)


def only(side: HeadSide, gaps: Collection[int]) -> HeadSide:
    """Return the side on which exactly these gaps' tensors leave.

    Parameters
    ----------
    side : HeadSide
        Of any pivot.
    gaps : collection of int
        Gaps over the pivot.
    """
    items = [item for item in side.items if item.gap in gaps]
    required = [*side.required[:-1], sum(item.size for item in items)]
    floor = _floor(side.prefix, required, items, side.rate)
    return HeadSide(side.prefix, required, items, floor, side.rate)


def link_rate(bandwidth: Fraction, most: int) -> tuple[int, int]:
    """Return bytes and ticks of the bandwidth, such that ``most * ticks`` fits into 61 bits.

    A bandwidth that would not fit is rounded up.
    """
    numerator, denominator = bandwidth.numerator, bandwidth.denominator
    while denominator and most * denominator >= 2**61:
        # Fewer ticks for the same bytes: a faster link.
        numerator, denominator = -(-numerator // 2), denominator // 2
    # Whatever is below 2**61 takes one tick on either side of this limit.
    return min(numerator, 2**62), denominator


def _floor(
    prefix: Sequence[int], required: Sequence[int], items: Sequence[Movable], rate: tuple[int, int]
) -> list[int]:
    """Return the head bound: what cannot have left before an operation, whatever the link did.

    Of the bytes absent when operation ``j`` starts, at least ``required[j]`` minus the sizes of
    what was ready before operation ``a`` ended have been transferred after that end.
    """
    count = len(prefix) - 1
    times, needs = np.array(prefix), np.array(required)
    absent = np.array([[*item.absent, True] for item in items], dtype=bool)
    absent = absent.reshape(len(items), count + 1)
    sizes = np.array([item.size for item in items], dtype=np.int64)
    early = sizes @ absent.astype(np.int64)
    floor = np.zeros(count + 1, dtype=np.int64)
    floor[count] = prefix[count]
    arriving: dict[int, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        arriving[item.ready].append(index)
    for start in range(count - 1, -1, -1):
        for index in arriving[start]:
            early -= sizes[index] * absent[index]
        lacking = needs[start + 1 :] - early[start + 1 :]
        ticks = np.where(lacking > 0, -(-lacking * rate[1] // rate[0]), -(2**61))
        ends = times[start + 1] + ticks - times[start + 1 :] + floor[start + 1 :]
        floor[start] = max(floor[start + 1], ends.max())
    return [int(value) for value in floor]
