"""How a side can still end, from every amount that has left: the other half of the search.

Take a label whose link is free at ``t`` and whose idle time is ``s``, and the transfers that follow
it. The side ends at ``max(t + link, s + idle)``, where ``link`` and ``idle`` depend on these
transfers alone: every step takes the larger of two sums (it is linear in the max-plus sense). For
the relaxation in which no class is counted, all pairs ``(link, idle)`` that no other is as good as
are found for every amount, from the end to the beginning. The least end over the pairs of an amount
bounds every sequence that passes there, and one of the relaxation attains it. So the first round of
the search needs no search, and later rounds look only at what counting changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import compiled, inlined, inner

Ints = NDArray[np.int64]

# Pairs that are kept for one amount; beyond it, two are replaced by one pair that is as good as
# both. Arbitrary.
_WIDEST = 64


@compiled
def still_missing(
    prefix: Ints, required: Ints, floor: Ints, rate: Ints, grid: int, levels: int
) -> Ints:
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
def put(link: Ints, idle: Ints, count: int, x: int, y: int) -> int:
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
def _roomier(values: Ints) -> Ints:
    larger = np.zeros(2 * values.size, np.int64)
    for index in range(values.size):
        larger[index] = values[index]
    return larger


@compiled
def ways(
    prefix: Ints,
    floor: Ints,
    run: Ints,
    still: Ints,
    most: Ints,
    size: Ints,
    time: Ints,
    ready: Ints,
) -> tuple[Ints, Ints, Ints]:
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
