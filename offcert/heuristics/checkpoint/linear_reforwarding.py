"""The re-forwarding paper's Algorithm 1 for linear graphs, O(n⁴), compiled.

For each pair of vertices, what lies between them is the largest cost that a local re-forward may
have; then two vertices are *accessible* if no more lies between them, and a shortest path in the
graph of accessible pairs is the cheapest set of stored vertices. Its actual cost counts.
`queued_reforwarding` returns the same memory much sooner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offcert.core.compiled import plain
from offcert.heuristics.checkpoint.sizes import Integers, Selection, path_back, size_array

# Rows of the scratch array. By definition.
STORED, PREVIOUS, BEST = 0, 1, 2
ROWS = 3


def linear_reforwarding(sizes: Sequence[int]) -> Selection:
    """Return stored vertices of least cost, by a shortest path for every pair of vertices.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of ``d_0 … d_n``: costs of the vertices from the source to the target.

    Returns
    -------
    Selection
        Its memory is that of Eq. (1), stored vertices and the largest sum between two, but for
        source and target: they are stored in every solution, and are not counted.

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
def best_pair(sizes: Integers, totals: Integers, scratch: Integers) -> int:
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
