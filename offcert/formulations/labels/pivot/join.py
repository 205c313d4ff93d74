"""Joining the sides of the pivot dynamic program.

A front label and a back label with the same tensors out make a schedule of length ``V_front +
V_back``, where ``V`` is the end of the side's last operation or of its last transfer, whichever is
later. At most one transfer straddles the cut. If it is a prefetch of ``v``, the front sees a return
that starts at ``b``, and the back sees ``v`` on the device from the cut on. The prefetch must end
before the back needs the link, and before the gap of ``v`` closes. A transfer out of ``v`` as the
back side's next step would have to respect the same, so the schedule takes at least ``b + w_v``
plus the start of that step. A straddling offload is the mirror image. No tracked class may return
on both sides (``model``): a tensor would leave twice.
"""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import plain, plain_inner
from offcert.formulations.labels.pivot.pool import (
    FINALS,
    NEVER,
    STRADDLES,
    Ints,
    Pool,
    SideArrays,
    bucket,
    decode,
)


@plain_inner
def _end(side: SideArrays, pool: Pool, label: int) -> int:
    last = side.prefix.size - 1
    return max(pool.s[label] + side.prefix[last], pool.t[label])


@plain_inner
def _compatible(mask: Ints, pool: Pool, label: int) -> bool:
    for i in range(mask.size):  # noqa: SIM110, compiled code has no generators
        if mask[i] & pool.mask[label, i]:
            return False
    return True


@plain
def join_whole(
    front: SideArrays, front_pool: Pool, back: SideArrays, back_pool: Pool, best: int
) -> tuple[int, tuple[int, int]]:
    """Return the best length below `best` without a straddling transfer, and its two labels."""
    last = back.prefix.size - 1
    key, mask = front_pool.at_key, front_pool.at_mask
    found = (-1, -1)
    for i in range(front_pool.counters[FINALS]):
        label = front_pool.final[i]
        begin = _end(front, front_pool, label)
        for i in range(key.size):
            key[i] = front_pool.key[label, i]
        for i in range(mask.size):
            mask[i] = front_pool.mask[label, i]
        other = bucket(back_pool, key)
        while other >= 0:
            if back_pool.k[other] == last:
                length = begin + _end(back, back_pool, other)
                if length < best and _compatible(mask, back_pool, other):
                    best = length
                    found = (label, other)
            other = back_pool.following[other]
    return best, found


@plain
def join_straddling(
    side: SideArrays, pool: Pool, other: SideArrays, other_pool: Pool, best: int
) -> tuple[int, tuple[int, int]]:
    """Return the best length with a return that straddles the cut from `side`.

    The rest of the answer: the row of the straddling return, and the other side's label.
    """
    last = side.prefix.size - 1
    other_last = other.prefix.size - 1
    found = (-1, -1)
    m, key, mask = pool.m, pool.at_key, pool.at_mask
    for row in range(pool.counters[STRADDLES]):
        label = np.int64(pool.straddle[row, 0])
        c = pool.straddle[row, 1]
        begin = pool.straddle[row, 2]
        for i in range(key.size):
            key[i] = pool.key[label, i]
        decode(side, key, m)
        key[side.word[c]] -= np.int64(1) << side.shift[c]
        end = max(begin, pool.s[label] + side.prefix[last])
        partner = bucket(other_pool, key)
        if partner < 0:
            continue
        for i in range(mask.size):
            mask[i] = pool.mask[label, i]
        mask[c // 62] |= side.tracked[c] << (c % 62)
        ready = other.prefix[other.available[c, m[c] - 1] + 1]
        while partner >= 0:
            if other_pool.k[partner] == other_last:
                begins = max(other_pool.t[partner], other_pool.s[partner] + ready)
                length = max(
                    end + _end(other, other_pool, partner), begin + side.time_back[c] + begins
                )
                if length < best and _compatible(mask, other_pool, partner):
                    best = length
                    found = (row, int(partner))
            partner = other_pool.following[partner]
    return best, found


How = tuple[int, int, int, int, int]


def join(
    front: SideArrays, front_pool: Pool, back: SideArrays, back_pool: Pool, best: int
) -> tuple[int, How | None]:
    """Return the best length below `best`, and how it comes about (None if there is none).

    The second part is ``(front label, back label, straddling side, class, begin)``; the straddling
    side is 0 for none, 1 for the front and 2 for the back.
    """
    how: How | None = None
    length, (one, two) = join_whole(front, front_pool, back, back_pool, best)
    if one >= 0:
        best, how = int(length), (int(one), int(two), 0, -1, -1)
    length, (row, two) = join_straddling(front, front_pool, back, back_pool, best)
    if row >= 0:
        label, c, begin = (int(value) for value in front_pool.straddle[row])
        best, how = int(length), (label, int(two), 1, c, begin)
    length, (row, one) = join_straddling(back, back_pool, front, front_pool, best)
    if row >= 0:
        label, c, begin = (int(value) for value in back_pool.straddle[row])
        best, how = int(length), (int(one), label, 2, c, begin)
    return min(int(best), int(NEVER)), how
