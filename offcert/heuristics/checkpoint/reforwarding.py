"""The re-forwarding paper's Algorithm 1 for linear graphs, compiled: as printed, and with a queue.

As printed it takes O(n⁴). For each pair of vertices, what lies between them is the largest cost
that a local re-forward may have; then two vertices are *accessible* if no more lies between them,
and a shortest path in the graph of accessible pairs is the cheapest set of stored vertices. Its
actual cost counts. `queued_reforwarding` returns the same memory much sooner.

Two steps make Algorithm 1's O(n⁴) small, and neither changes the least cost:

1. *For one limit*, the vertices accessible from the left are a window that moves to the right, so
   the shortest path follows from the selection paper's queue in O(n) instead of O(n²).
2. *Not every limit is tried.* A higher limit allows more, so the least stored bytes ``c(s)`` never
   increase with the limit `s`. For all limits from `a` on and below `b` the cost is at least
   ``a + c(b)``: if that is no better than the best known, none of them is tried; else the middle
   is.

Limits are integers from 0 to the sum of all, so nothing has to be listed. For a limit that no
segment attains, ``s + c(s)`` is more than the actual cost, and the actual cost counts. On networks
tens to hundreds of limits are tried.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offcert.core.compiled import IntArray, plain
from offcert.heuristics.checkpoint.sizes import (
    PREVIOUS,
    ROWS,
    STORED,
    Selection,
    least_stored,
    path_back,
    size_array,
)

# A row of the scratch array, where `sizes` has a queue. By definition.
BEST = 2


def linear_reforwarding(sizes: Sequence[int]) -> Selection:
    """Return stored vertices of least cost, by a shortest path for every pair of vertices.

    Its memory is that of Eq. (1): stored vertices, without source and target, which every solution
    stores, and the largest sum between two.

    Raises
    ------
    InputError
        If the sizes are no sizes.
    """
    array = size_array(sizes)
    scratch = np.zeros((ROWS, len(array)), np.int64)
    memory = int(best_pair(array, np.cumsum(array), scratch))
    return Selection(path_back(scratch[BEST]), memory - int(array[0] + array[-1]))


@plain
def best_pair(sizes: IntArray, totals: IntArray, scratch: IntArray) -> int:
    """Return the least cost, ends included; row ``BEST`` has the vertex stored before each."""
    count = len(sizes)
    stored, previous = scratch[STORED], scratch[PREVIOUS]
    best = 2 * totals[count - 1]
    for first in range(count - 1):
        for second in range(first + 1, count):
            limit = totals[second - 1] - totals[first]
            stored[0] = sizes[0]
            for i in range(1, count):
                previous[i] = i - 1
                for h in range(i - 2, -1, -1):
                    if totals[i - 1] - totals[h] <= limit and stored[h] < stored[previous[i]]:
                        previous[i] = h
                stored[i] = sizes[i] + stored[previous[i]]
            largest, i = 0, count - 1
            while i > 0:
                largest = max(largest, totals[i - 1] - totals[previous[i]])
                i = previous[i]
            if stored[count - 1] + largest < best:
                best = stored[count - 1] + largest
                for i in range(count):
                    scratch[BEST, i] = previous[i]
    return int(best)


# How often a range is halved, at most. Derived: 64 halvings end at one unit.
_DEPTH = 64


def queued_reforwarding(sizes: Sequence[int]) -> Selection:
    """Return stored vertices of least cost; parameters and result as `linear_reforwarding`.

    Raises
    ------
    InputError
        If the sizes are no sizes.
    """
    array = size_array(sizes)
    memory, _, previous = _searched(array)
    return Selection(path_back(previous), memory - int(array[0] + array[-1]))


def limits_tried(sizes: Sequence[int]) -> int:
    """Return for how many limits `queued_reforwarding` looks for a shortest path."""
    return _searched(size_array(sizes))[1]


def _searched(sizes: IntArray) -> tuple[int, int, IntArray]:
    """Return the least cost, ends included, the limits tried, and each vertex's predecessor."""
    scratch = np.zeros((ROWS, len(sizes)), np.int64)
    waiting = np.zeros((3, 2 * _DEPTH), np.int64)
    memory, tried = search_limits(sizes, np.cumsum(sizes), scratch, waiting)
    return int(memory), int(tried), scratch[PREVIOUS]


@plain
def search_limits(
    sizes: IntArray, totals: IntArray, scratch: IntArray, waiting: IntArray
) -> tuple[int, int]:
    """Return the least cost, ends included, and the limits tried; leave the best path behind.

    Rows of `waiting` are ranges of limits: the first, the first beyond, and ``c`` there.
    """
    last = len(sizes) - 1
    # With both ends alone: no limit above their segment changes anything.
    whole = totals[last - 1] - totals[0]
    best, chosen, tried = whole + sizes[0] + sizes[last], whole, 0
    waiting[0, 0], waiting[1, 0], waiting[2, 0] = 0, whole, sizes[0] + sizes[last]
    count = 1
    while count > 0:
        count -= 1
        low, high, above = waiting[0, count], waiting[1, count], waiting[2, count]
        if low >= high or low + above >= best:
            continue
        middle = low + (high - low) // 2
        stored = least_stored(sizes, totals, middle, scratch)
        tried += 1
        largest, i = 0, last
        while i > 0:
            before = scratch[PREVIOUS, i]
            largest = max(largest, totals[i - 1] - totals[before])
            i = before
        if stored + largest < best:
            best, chosen = stored + largest, middle
        # From `largest` up to the middle the same is stored, and `largest` has been tried.
        waiting[0, count], waiting[1, count], waiting[2, count] = middle + 1, high, above
        count += 1
        waiting[0, count], waiting[1, count], waiting[2, count] = low, largest, stored
        count += 1
    least_stored(sizes, totals, chosen, scratch)
    return int(best), int(tried)
