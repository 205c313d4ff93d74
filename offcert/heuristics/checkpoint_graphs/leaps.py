"""Which vertices of a row of closed sets to store so that no leap between two of them is too large.

What Algorithm 5 of the re-forwarding paper calls solving a linear segment: Algorithm 1 for one max
term, where closed sets lie between the vertices of the chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate


def cheapest_leaps(joints: Sequence[int], between: Sequence[int], limit: int) -> list[int]:
    """Return which joints to store: the shortest path in the accessibility graph.

    The ends of the row are stored by somebody else. From one stored joint to the next, what is
    leapt over (joints and closed sets) has at most `limit` bytes.

    Parameters
    ----------
    joints : sequence of int
        Bytes of the n joints inside the row.
    between : sequence of int, length n + 1
        Bytes of the closed sets before, between and behind them; none above `limit`.
    limit : int
        Bytes.

    Returns
    -------
    list of int
        Indices of joints, increasing.

    Notes
    -----
    Linear in the length of the row: where a leap may begin only moves forward, and a queue keeps
    the cheapest of those places at its head (as in Algorithm 3 of the selection paper).
    """
    count = len(joints)
    # behind[k]: bytes before joint k, which is at place k + 1; place 0 and count + 1 are the ends.
    sizes = [0, *joints, 0]
    behind = [0, *accumulate(a + b for a, b in zip(between, sizes[1:], strict=True))]
    best, previous = [0], [-1]
    queue = deque([0])
    for place in range(1, count + 2):
        while behind[place] - sizes[place] - behind[queue[0]] > limit:
            queue.popleft()
        previous.append(queue[0])
        best.append(best[queue[0]] + sizes[place])
        while queue and best[queue[-1]] >= best[place]:
            queue.pop()
        queue.append(place)
    chosen = []
    place = previous[count + 1]
    while place > 0:
        chosen.append(place - 1)
        place = previous[place]
    return chosen[::-1]
