"""The least bytes to store if no segment may exceed a limit: O(n) by a queue, compiled."""

from __future__ import annotations

from offcert.core.compiled import plain_inner
from offcert.heuristics.checkpoint.sizes import Integers

# Rows of the scratch array.
STORED, PREVIOUS, QUEUE = 0, 1, 2
ROWS = 3


@plain_inner
def least_stored(sizes: Integers, totals: Integers, limit: int, scratch: Integers) -> int:
    """Return the least bytes of checkpoints between which lie at most `limit` bytes each.

    ``STORED`` of `i` is the least for ``d_0 … d_i`` with both ends stored: ``d_i`` and the least
    of those `h` for which ``d_{h+1} … d_{i-1}`` sum to at most the limit. These `h` are a window
    that moves to the right, and those that may still become its least wait in a queue (selection
    paper, Algorithm 3).

    Parameters
    ----------
    sizes, totals : int64 arrays, shape (n+1,)
        ``d_i``, and the sum of all up to and with ``d_i``.
    limit : int
        Bytes, at least 0.
    scratch : int64 array, shape (ROWS, n+1)
        Written: ``STORED``; ``PREVIOUS``, the checkpoint before each; ``QUEUE``.
    """
    stored, previous, queue = scratch[STORED], scratch[PREVIOUS], scratch[QUEUE]
    stored[0] = sizes[0]
    queue[0] = 0
    head, tail = 0, 1
    for i in range(1, len(sizes)):
        while totals[i - 1] - totals[queue[head]] > limit:
            head += 1
        best = queue[head]
        previous[i] = best
        stored[i] = sizes[i] + stored[best]
        while tail > head and stored[queue[tail - 1]] >= stored[i]:
            tail -= 1
        queue[tail] = i
        tail += 1
    return int(stored[len(sizes) - 1])
