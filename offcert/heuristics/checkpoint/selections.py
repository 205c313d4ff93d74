"""The selection paper's Algorithms 3, 5 and 6: the least static and dynamic memory.

Algorithm 3 (static, Eq. 6) takes O(n³). For every sum that a segment can have, the least bytes of
checkpoints between which no segment has more; O(n) each, by a queue. Read as follows
(`docs/theory/checkpoint-chains.md` has why):

- ``d_n`` is stored, as the paper says in words. In its recursion (8), ``d_n`` may lie in the last
  segment.
- The checkpoint `j` closest to `i` may be `i` itself: (8) says so, and the printed loop, which adds
  `i` to the queue only after ``M(i)``, does not.
- 0 is a segment memory, too: that of neighbouring checkpoints.

Algorithm 5 (dynamic, Eq. 9) takes O(n²). Read as follows: the recursion (13) starts from ``M(0)``,
as ``d_0`` is a checkpoint, and the next checkpoint `j` may be `n`.

Algorithm 6 (dynamic, Eq. 9) takes O(n). ``M(i) = d_i + min over j of max(M(j), U(i, j))``. ``U(i,
j)`` grows with `j`, and as `i` falls; of the ``M(j)``, those count that are less than all to their
left: the queue, in which they fall with `j`. So the best `j` is one of the two between which ``U(i,
·)`` crosses the queue, and the crossing only moves to the left. Three things are done otherwise
than printed, each with a reason:

- The neighbour of `j` that line 13 looks at is the *next in the queue*. Printed is ``j + 1``, which
  may have left the queue; then the best is missed.
- The largest gradient between `i` and `j` follows from a second queue. It can be kept in O(1) while
  `i` falls, but not while `j` falls as well, so the printed update of ``U`` is not O(1).
- Sizes of 0 make values tie, and the crossing itself may leave the queue; then it is at `i`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from offcert.core.compiled import IntArray, plain, plain_inner
from offcert.core.errors import MethodError
from offcert.heuristics.checkpoint.arbitrary import linear_reforwarding, queued_reforwarding
from offcert.heuristics.checkpoint.live import (
    PREVIOUS,
    ROWS,
    Selection,
    budget_search,
    gradient_array,
    least_stored,
    path,
    path_back,
    size_array,
    sqrt_rule,
)

# Rows of the scratch array. By definition.
MEMORY, FOLLOWING, RISING, RECORDS = 0, 1, 2, 3
LINEAR_ROWS = 4


def linear_selection(sizes: Sequence[int], gradients: Sequence[int] | None = None) -> Selection:
    """Return checkpoints of least dynamic memory; parameters and memory as `dynamic_selection`."""
    array = size_array(sizes)
    scratch = np.zeros((LINEAR_ROWS, len(array)), np.int64)
    memory = crossings(array, gradient_array(array, gradients), np.cumsum(array), scratch)
    return Selection(path(scratch[FOLLOWING]), int(memory))


@plain
def crossings(sizes: IntArray, gradients: IntArray, totals: IntArray, scratch: IntArray) -> int:
    """Return ``M(0)``, and write ``M(i)`` and the next checkpoint after each `i`.

    Both queues are stacks whose top is their left end. ``RECORDS`` has the indices from `i` on
    whose gradient is larger than all between `i` and them, so the largest up to some index is that
    of the last record not beyond it.
    """
    memory, following = scratch[MEMORY], scratch[FOLLOWING]
    queue, records = scratch[RISING], scratch[RECORDS]
    last = len(sizes) - 1
    memory[last] = sizes[last]
    queue[0] = last
    # Number of entries of both stacks; positions of the crossing, and of the records that stand for
    # the segments up to it and up to its left neighbour.
    queued, recorded, crossing, at, left_at = 1, 0, 0, 0, 0
    for i in range(last - 1, -1, -1):
        while recorded > 0 and gradients[records[recorded - 1]] <= gradients[i]:
            recorded -= 1
        records[recorded] = i
        recorded += 1
        j = queue[crossing]
        at = record_at(records, recorded, at, j)
        needed = segment_bytes(totals, gradients, records, at, i, j)
        left = -1
        while crossing + 1 < queued:
            left = queue[crossing + 1]
            left_at = record_at(records, recorded, max(at, left_at), left)
            among = segment_bytes(totals, gradients, records, left_at, i, left)
            if among < memory[left]:
                break
            crossing, at, j, needed, left = crossing + 1, left_at, left, among, -1
        least, following[i] = max(needed, memory[j]), j
        if left >= 0 and memory[left] < least:
            least, following[i] = memory[left], left
        memory[i] = sizes[i] + least
        while queued > 0 and memory[queue[queued - 1]] >= memory[i]:
            queued -= 1
        queue[queued] = i
        queued += 1
        crossing = min(crossing, queued - 1)
    return int(memory[0])


@plain_inner
def record_at(records: IntArray, recorded: int, at: int, j: int) -> int:
    """Return the position of the last record before `j`, at `at` or further to the left."""
    at = min(at, recorded - 1)
    while records[at] >= j:
        at += 1
    return at


@plain_inner
def segment_bytes(
    totals: IntArray, gradients: IntArray, records: IntArray, at: int, i: int, j: int
) -> int:
    """Return ``U(i, j)``: the data behind `i` up to `j`, and the largest gradient before `j`."""
    return int(totals[j] - totals[i] + gradients[records[at]])


# Layers of the longest network: its n²/2 segments take 400 MB. Derived.
MAX_LAYERS = 10_000


def static_selection(sizes: Sequence[int]) -> Selection:
    """Return checkpoints of least static memory (Eq. 6), by trying every sum of a segment."""
    array = size_array(sizes)
    if len(array) - 1 > MAX_LAYERS:
        raise MethodError(
            f"Algorithm 3 keeps every sum of a segment, which is for {MAX_LAYERS} layers at most, "
            f"not {len(array) - 1}"
        )
    totals = np.cumsum(array)
    scratch = np.zeros((ROWS, len(array)), np.int64)
    memory = int(best_limit(array, totals, _segment_sums(totals), scratch))
    return Selection(path_back(scratch[PREVIOUS]), memory)


def _segment_sums(totals: IntArray) -> IntArray:
    """Return every sum of neighbours among ``d_1 … d_{n-1}``, and 0, increasing."""
    inner = totals[:-1]
    rows = [inner[start + 1 :] - inner[start] for start in range(len(inner) - 1)]
    return np.unique(np.concatenate([np.zeros(1, np.int64), *rows]))


@plain
def best_limit(sizes: IntArray, totals: IntArray, limits: IntArray, scratch: IntArray) -> int:
    """Return the least memory over all limits, which increase; leave its checkpoints behind.

    No limit helps that leaves no room for both ends below the best so far.
    """
    ends = sizes[0] + sizes[len(sizes) - 1]
    best, chosen = ends + totals[len(sizes) - 1], limits[0]
    for limit in limits:
        if limit + ends >= best:
            break
        memory = limit + least_stored(sizes, totals, limit, scratch)
        if memory < best:
            best, chosen = memory, limit
    least_stored(sizes, totals, chosen, scratch)
    return int(best)


def dynamic_selection(sizes: Sequence[int], gradients: Sequence[int] | None = None) -> Selection:
    """Return checkpoints of least dynamic memory (Eq. 9), by trying every next one of each.

    A segment's buffer holds the largest of some gradients, by default as large as the data.
    """
    array = size_array(sizes)
    following = np.zeros(len(array), np.int64)
    memory = np.zeros(len(array), np.int64)
    best_next(array, gradient_array(array, gradients), memory, following)
    return Selection(path(following), int(memory[0]))


@plain
def best_next(sizes: IntArray, gradients: IntArray, memory: IntArray, following: IntArray) -> None:
    """Write ``M(i)`` and the next checkpoint after each `i`."""
    last = len(sizes) - 1
    memory[last] = sizes[last]
    for i in range(last - 1, -1, -1):
        between, buffer = 0, gradients[i]
        least = -1
        for j in range(i + 1, last + 1):
            needed = max(memory[j], between + buffer + sizes[j])
            if least < 0 or needed < least:
                least, following[i] = needed, j
            between += sizes[j]
            buffer = max(buffer, gradients[j])
        memory[i] = sizes[i] + least


@dataclass(frozen=True, slots=True)
class SelectionMethod:
    """An algorithm that selects the checkpoints of a chain."""

    # From the sizes ``d_0 … d_n`` in bytes to a `Selection`.
    select: Callable[[Sequence[int]], Selection]
    model: str  # The memory model in which it counts: "static", "dynamic", …
    optimal: bool  # Whether no other checkpoints take less memory under that model.
    source: str  # Where it was published.


SELECTIONS: dict[str, SelectionMethod] = {
    "sqrt": SelectionMethod(sqrt_rule, "chen", False, "Chen et al. 2016, §4.1"),
    "budget": SelectionMethod(budget_search, "chen", False, "Chen et al. 2016, Algorithm 3"),
    "reforwarding": SelectionMethod(
        linear_reforwarding, "reforwarding", True, "Feng and Huang 2018, Algorithm 1"
    ),
    "reforwarding-queue": SelectionMethod(
        queued_reforwarding, "reforwarding", True, "Feng and Huang 2018, Algorithm 1, with a queue"
    ),
    "algorithm-3": SelectionMethod(
        static_selection, "static", True, "Hong et al., Algorithm 3, corrected"
    ),
    "algorithm-5": SelectionMethod(
        dynamic_selection, "dynamic", True, "Hong et al., Algorithm 5, corrected"
    ),
    "algorithm-6": SelectionMethod(
        linear_selection, "dynamic", True, "Hong et al., Algorithm 6, corrected"
    ),
}
"""For chains of which only sizes are known; `live_selection` takes all that a chain says."""
