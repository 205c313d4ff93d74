"""The selection paper's Algorithm 3: the least static memory (its Eq. 6) in O(n³).

For every sum that a segment can have, the least bytes of checkpoints between which no segment has
more; O(n) each, by a queue. Read as follows (`docs/theory/checkpoint-chains.md` has why):

- ``d_n`` is stored, as the paper says in words. In its recursion (8), ``d_n`` may lie in the last
  segment.
- The checkpoint `j` closest to `i` may be `i` itself: (8) says so, and the printed loop, which adds
  `i` to the queue only after ``M(i)``, does not.
- 0 is a segment memory, too: that of neighbouring checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offcert.core.compiled import plain
from offcert.core.errors import MethodError
from offcert.heuristics.checkpoint.sizes import (
    PREVIOUS,
    ROWS,
    Integers,
    Selection,
    least_stored,
    path_back,
    size_array,
)

# Layers of the longest network: its n²/2 segments take 400 MB. Derived.
MAX_LAYERS = 10_000


def static_selection(sizes: Sequence[int]) -> Selection:
    """Return checkpoints of least static memory, by trying every sum of a segment.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of ``d_0 … d_n``.

    Returns
    -------
    Selection
        Its memory is that of Eq. (6): all checkpoints, and the largest sum between two.

    Raises
    ------
    InputError
        If the sizes are no sizes.
    MethodError
        If there are more than `MAX_LAYERS` layers.
    """
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


def _segment_sums(totals: Integers) -> Integers:
    """Return every sum of neighbours among ``d_1 … d_{n-1}``, and 0, increasing."""
    inner = totals[:-1]
    rows = [inner[start + 1 :] - inner[start] for start in range(len(inner) - 1)]
    return np.unique(np.concatenate([np.zeros(1, np.int64), *rows]))


@plain
def best_limit(sizes: Integers, totals: Integers, limits: Integers, scratch: Integers) -> int:
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
