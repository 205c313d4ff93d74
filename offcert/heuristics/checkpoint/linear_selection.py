"""The selection paper's Algorithm 6: the least dynamic memory (its Eq. 9) in O(n), compiled.

``M(i) = d_i + min over j of max(M(j), U(i, j))``. ``U(i, j)`` grows with `j`, and as `i` falls; of
the ``M(j)``, those count that are less than all to their left: the queue, in which they fall with
`j`. So the best `j` is one of the two between which ``U(i, ·)`` crosses the queue, and the crossing
only moves to the left. Three things are done otherwise than printed, each with a reason:

- The neighbour of `j` that line 13 looks at is the *next in the queue*. Printed is ``j + 1``, which
  may have left the queue; then the best is missed.
- The largest gradient between `i` and `j` follows from a second queue. It can be kept in O(1) while
  `i` falls, but not while `j` falls as well, so the printed update of ``U`` is not O(1).
- Sizes of 0 make values tie, and the crossing itself may leave the queue; then it is at `i`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offcert.core.compiled import plain, plain_inner
from offcert.heuristics.checkpoint.sizes import (
    Integers,
    Selection,
    gradient_array,
    path,
    size_array,
)

# Rows of the scratch array. By definition.
MEMORY, FOLLOWING, QUEUE, RECORDS = 0, 1, 2, 3
ROWS = 4


def linear_selection(sizes: Sequence[int], gradients: Sequence[int] | None = None) -> Selection:
    """Return checkpoints of least dynamic memory; parameters and memory as `dynamic_selection`.

    Raises
    ------
    InputError
        If the sizes are no sizes, or there are not as many gradients.
    """
    array = size_array(sizes)
    scratch = np.zeros((ROWS, len(array)), np.int64)
    memory = crossings(array, gradient_array(array, gradients), np.cumsum(array), scratch)
    return Selection(path(scratch[FOLLOWING]), int(memory))


@plain
def crossings(sizes: Integers, gradients: Integers, totals: Integers, scratch: Integers) -> int:
    """Return ``M(0)``, and write ``M(i)`` and the next checkpoint after each `i`.

    Both queues are stacks whose top is their left end. ``RECORDS`` has the indices from `i` on
    whose gradient is larger than all between `i` and them, so the largest up to some index is that
    of the last record not beyond it.
    """
    memory, following = scratch[MEMORY], scratch[FOLLOWING]
    queue, records = scratch[QUEUE], scratch[RECORDS]
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
def record_at(records: Integers, recorded: int, at: int, j: int) -> int:
    """Return the position of the last record before `j`, at `at` or further to the left."""
    at = min(at, recorded - 1)
    while records[at] >= j:
        at += 1
    return at


@plain_inner
def segment_bytes(
    totals: Integers, gradients: Integers, records: Integers, at: int, i: int, j: int
) -> int:
    """Return ``U(i, j)``: the data behind `i` up to `j`, and the largest gradient before `j`."""
    return int(totals[j] - totals[i] + gradients[records[at]])
