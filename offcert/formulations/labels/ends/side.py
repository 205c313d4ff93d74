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
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True)
class Movable:
    """A tensor that may be absent during the pivot."""

    gap: int  # Its gap over the pivot (index into ``trace.gaps``).
    # Bytes, and ticks of the transfer.
    size: int
    time: int
    ready: int  # Operation of this side after whose end the transfer may start; -1 for at once.
    # Length K. Whether the tensor can be absent during each operation of the side.
    absent: tuple[bool, ...]


@dataclass(frozen=True)
class HeadSide:
    """The operations on one side of a pivot, in the side's own time."""

    prefix: list[int]  # Length K+1. Sums of the operations' durations.
    # Length K+1. Bytes of `items` that must be absent during each operation; the last is the
    # pivot's.
    required: list[int]
    items: list[Movable]  # In the order in which they become ready.
    # Length K+1. ``floor[j]`` plus the idle time before operation ``j`` bounds the end of the side.
    floor: list[int]
    # Bytes and ticks of the link in this side's direction, at least as fast as it is.
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

    `required` are the bytes that must be absent during each operation, from
    ``relaxations.required_absent``; `movables` are gaps whose tensors take time on the link, each
    of another tensor, by default those over the pivot.
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
    prefix = list(accumulate((trace.durations[each] for each in columns[:-1]), initial=0))
    needs = []
    for operation in columns:
        others = sum(trace.gap_size(gap) for gap in trace.gaps_over[operation] if not counts(gap))
        needs.append(max(0, required[operation] - others))
    items = sorted(items, key=lambda item: (item.ready, item.size, item.gap))
    rate = link_rate(problem.platform.rate(kind), sum(item.size for item in items) + max(needs))
    return HeadSide(prefix, needs, items, _floor(prefix, needs, items, rate), rate)


def only(side: HeadSide, gaps: Collection[int]) -> HeadSide:
    """Return the side, of any pivot, on which exactly the tensors of these gaps leave."""
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
    absent = np.array([[*item.absent, True] for item in items], dtype=bool)
    absent = absent.reshape(len(items), len(prefix))
    sizes, ready = [item.size for item in items], [item.ready for item in items]
    return floor_of(prefix, required, rate, sizes, ready, absent)


def floor_of(
    prefix: Sequence[int],
    required: Sequence[int],
    rate: tuple[int, int],
    sizes: Sequence[int],
    ready: Sequence[int],
    absent: NDArray[np.bool_],
) -> list[int]:
    """Return the head bound: what cannot have left before an operation, whatever the link did.

    Of the bytes absent when operation ``j`` starts, at least ``required[j]`` minus the sizes of
    what was ready before operation ``a`` ended have been transferred after that end. A row of
    `absent` says of a tensor during which operations, and the pivot, it can be absent.
    """
    count = len(prefix) - 1
    times, needs, weights = (np.array(each, np.int64) for each in (prefix, required, sizes))
    early = weights @ absent.astype(np.int64)
    floor = np.zeros(count + 1, dtype=np.int64)
    floor[count] = prefix[count]
    arriving: dict[int, list[int]] = defaultdict(list)
    for index, begun in enumerate(ready):
        arriving[begun].append(index)
    for start in range(count - 1, -1, -1):
        for index in arriving[start]:
            early -= weights[index] * absent[index]
        lacking = needs[start + 1 :] - early[start + 1 :]
        ticks = np.where(lacking > 0, -(-lacking * rate[1] // rate[0]), -(2**61))
        ends = times[start + 1] + ticks - times[start + 1 :] + floor[start + 1 :]
        floor[start] = max(floor[start + 1], ends.max())
    return [int(value) for value in floor]


def starts_too_early(
    prefix: list[int], first: Movable, item: Movable, times: tuple[int, int], run: int
) -> bool:
    """Return whether a transfer that suits the first item of a class comes too early for another.

    `times` are when the link is free, and the idle time by then; `run` operations have run.
    """
    if item.ready >= run:
        return True
    free, idle = times
    begun = max(free, idle + prefix[first.ready + 1])
    return idle + prefix[item.ready + 1] > begun
