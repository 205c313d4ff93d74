"""The compiled search of one side: labels, dominance, pruning.

A label is what a sequence of transfers leads to: counts ``m`` of tensors that are out, the time
``t`` at which the link is free, ``k`` operations that have been run as early as possible, and their
accumulated idle time ``s``. The last of them ended at ``s + prefix[k]``; for an earlier one that
estimate is only right if the device has not waited since, but a wait ends when a transfer ends, so
both the estimate and the true end are then at most ``t``, and every use here takes a maximum with
``t`` or compares with something that is at least ``t``. docs/theory/pivot.md says what a transfer
out and one back lead to, and why labels may replace others. Labels are expanded in order of ``t``,
which every transfer increases.

A transfer out never follows a transfer back that it could have preceded: had ``u`` been available
when ``v`` started back, exchanging the two would free memory earlier and take it later.

*Duplex links.* What comes back has a link of its own, free at ``r`` (0 on a simplex link), and may
come at any time from ``t`` on, when what left before has left. An operation then also waits until
a tensor that is due is back, long after ``t``, maybe; so what became available before it, by one of
the first ``held`` operations, is taken to have been available at once. Exchanging transfers proves
nothing, as they share no link. What is on its way back at the cut is joined like what is back: the
links, each for itself, say how long that takes.

*Pruning.* ``fv`` bounds the end of the side: by the idle time plus the head bound, and for every
operation not yet run by the time to move what it lacks. ``ft`` bounds the whole schedule: what is
out must come back over the same link, each tensor before the end of its gap. A label has a dozen
successors, most of them hopeless; so what their bounds have in common is worked out once.
"""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import IntArray, inlined, plain
from offcert.formulations.labels.pivot.arrays import SideArrays, decode
from offcert.formulations.labels.store import (
    BEST,
    BUCKETS,
    DEFERRED,
    FINALS,
    HEAP,
    LABELS,
    POPPED,
    STRADDLES,
    Pool,
    enter,
    take,
    wait,
)

DONE, PAUSED, FULL = range(3)


@inlined
def _floor_ticks(rate: IntArray, amount: int) -> int:
    return amount * rate[1] // rate[0]


@inlined
def _ticks(rate: IntArray, amount: int) -> int:
    return -(-amount * rate[1] // rate[0])


@inlined
def _weight(size: IntArray, m: IntArray, limit: IntArray, j: int) -> int:
    total = 0
    for c in range(m.size):
        total += size[c] * min(m[c], limit[c, j])
    return total


@inlined
def _is_due(side: SideArrays, m: IntArray, j: int) -> bool:
    """Whether a tensor that is out must be back before operation `j` starts."""
    for e in range(side.due_at[j], side.due_at[j + 1]):
        if side.due_rank[e] < m[side.due_class[e]]:
            return True
    return False


@inlined
def _change(side: SideArrays, m: IntArray, j: int) -> int:
    """Bytes by which those absent at operation `j` exceed those absent at the one before."""
    total = 0
    for e in range(side.event_at[j], side.event_at[j + 1]):
        if side.event_rank[e] < m[side.event_class[e]]:
            total += side.event_bytes[e]
    return total


@inlined
def _look(side: SideArrays, pool: Pool) -> None:
    """Write down what labels that differ from this one in a single transfer need to know of it.

    By operation: ``need`` are the bytes that it lacks, ``owed`` the time to move these and to get
    from the operation to the side's end. By tensor: ``way_sum`` is the time that the tensors before
    it take to return, ``way_before`` and ``way_after`` when those before and after it have arrived
    on the other side. ``excess`` is the time in which those return that cannot be out at the cut.
    """
    m = pool.m
    absent = _weight(side.size, m, side.spans, 0)
    for j in range(side.prefix.size):
        if j > 0:
            absent += _change(side, m, j)
        pool.need[j] = side.required[j] - absent
        # Rounded down: one transfer's time, rounded up, is added or taken away.
        pool.owed[j] = _floor_ticks(side.rate_out, pool.need[j]) + side.floor[j] - side.prefix[j]
    tensors = side.way_class.size
    pool.way_sum[0] = pool.way_before[0] = pool.way_after[tensors] = 0
    for e in range(tensors):
        pool.way_sum[e + 1], pool.way_before[e + 1] = pool.way_sum[e], pool.way_before[e]
        c = side.way_class[e]
        if side.way_rank[e] < m[c]:
            pool.way_sum[e + 1] += side.time_back[c]
            arrival = pool.way_sum[e + 1] + side.way_head[e]
            pool.way_before[e + 1] = max(pool.way_before[e], arrival)
    for e in range(tensors - 1, -1, -1):
        pool.way_after[e] = pool.way_after[e + 1]
        if side.way_rank[e] < m[side.way_class[e]]:
            arrival = pool.way_sum[e + 1] + side.way_head[e]
            pool.way_after[e] = max(pool.way_after[e], arrival)
    pool.excess[0] = 0
    for c in range(m.size):
        if m[c] > side.eligible[c]:
            pool.excess[0] += (m[c] - side.eligible[c]) * side.time_back[c]


@inlined
def _settle(
    side: SideArrays,
    pool: Pool,
    c: int,
    change: int,
    t: int,
    r: int,
    s: int,
    k: int,
    held: int,
    limits: IntArray,
) -> tuple[int, int, int, int, int]:
    """Run operations as far as possible; return ``held``, ``s``, ``k``, and both bounds.

    ``pool.m`` has one tensor of class `c` more (`change` 1) or less (-1) than the label for which
    `look` worked things out. If the first bound is beyond its limit, the second is not worked out.
    """
    last = side.prefix.size - 1
    m, prefix, need, owed = pool.m, side.prefix, pool.need, pool.owed
    # What makes the difference, wherever it can be absent.
    rank = m[c] - (change > 0)
    spans = side.spans[c]
    size, out, back = change * side.size[c], change * side.time_out[c], change * side.time_back[c]
    arrived, before = t if change > 0 else max(t, r), k
    while k < last and need[k] <= size * (rank < spans[k]) and not _is_due(side, m, k):
        if k == before and s < arrived - prefix[k]:
            s = arrived - prefix[k]
            held = k if side.duplex and change < 0 else held
        k += 1
    missing, late = 0, 0
    for j in range(k, last + 1):
        differs = rank < spans[j]
        lacking = need[j] - size * differs
        missing = max(missing, lacking)
        if lacking > 0:
            late = max(late, owed[j] - out * differs)
    eligible = rank < side.eligible[c]
    excess = pool.excess[0] + (0 if eligible else back)
    fv = max(s + side.floor[k], t + (late if side.duplex else max(late, excess)))
    if fv > limits[2]:
        return held, s, k, fv, fv
    tensors = side.way_class.size
    way, tail = pool.way_sum[tensors], pool.way_before[tensors]
    if eligible:
        e = side.way_at[c, rank]
        way += back
        tail = max(pool.way_before[e], pool.way_after[e + 1] + back)
        if change > 0:
            tail = max(tail, pool.way_sum[e] + back + side.way_head[e])
    extra = 0
    if missing > 0:
        way += _ticks(side.rate_back, missing)
        if not side.duplex:
            extra = _ticks(side.rate_out, missing)
    ft = max(t, r) + excess + extra + max(tail, way + side.least_head[0])
    if side.duplex and change < 0 and eligible:
        # It may be under way at the cut, and is needed on the other side.
        ft = max(ft, r + side.way_head[side.way_at[c, rank]])
    return held, s, k, fv, ft


@plain
def start(side: SideArrays, pool: Pool, limits: IntArray) -> None:
    """Enter the label of nothing moved, into an empty pool."""
    _look(side, pool)
    held, s, k, fv, ft = _settle(side, pool, 0, 0, 0, 0, 0, 0, 0, limits)
    enter(pool, pool.at_key, pool.at_mask, 0, 0, held, s, k, fv, ft, -1, 0, limits)


@inlined
def _expand_out(
    side: SideArrays,
    pool: Pool,
    label: int,
    m: IntArray,
    key: IntArray,
    mask: IntArray,
    limits: IntArray,
) -> None:
    t, back_free, s, k = pool.t[label], pool.r[label], pool.s[label], pool.k[label]
    action, held = pool.action[label], pool.held[label]
    # Only what became available after the last return started may leave right after it.
    since = -1
    if not side.duplex and action < 0 and m[-action - 1] < side.eligible[-action - 1]:
        since = t - side.time_back[-action - 1]
    for c in range(m.size):
        r = m[c]
        if r >= side.here[c] or side.available[c, r] >= k:
            continue
        if (mask[c // 62] >> (c % 62)) & 1:
            continue
        ready = s + side.prefix[side.available[c, r] + 1]
        if ready <= since:
            continue
        if side.available[c, r] < held:
            ready = 0
        end = max(t, ready) + side.time_out[c]
        closes = side.closes[c, r]
        if not side.duplex and closes <= k and end >= s + side.prefix[closes]:
            continue
        m[c] += 1
        most = min(k, side.deadline[c, r])
        held2, s2, k2, fv, ft = _settle(
            side, pool, c, 1, end, back_free, s, most, min(held, most), limits
        )
        m[c] -= 1
        unit = np.int64(1) << side.shift[c]
        key[side.word[c]] += unit
        enter(pool, key, mask, end, back_free, held2, s2, k2, fv, ft, label, c + 1, limits)
        key[side.word[c]] -= unit


@inlined
def _enter_return(
    side: SideArrays,
    pool: Pool,
    label: int,
    c: int,
    begin: int,
    k: int,
    m: IntArray,
    key: IntArray,
    mask: IntArray,
    limits: IntArray,
) -> None:
    """Add the label after a tensor of class `c` returns from `begin` on, with `k` operations run.

    `m`, `key` and `mask` describe the new label.
    """
    s = pool.s[label]
    waits = not side.duplex and begin >= s + side.prefix[k]
    if waits and _weight(side.size, m, side.between, k) < side.idle_required[k]:
        return
    end = begin + side.time_back[c]
    free, back_free = (pool.t[label], end) if side.duplex else (end, 0)
    held, s2, k2, fv, ft = _settle(
        side, pool, c, -1, free, back_free, s, k, min(pool.held[label], k), limits
    )
    enter(pool, key, mask, free, back_free, held, s2, k2, fv, ft, label, -c - 1, limits)


@inlined
def _note_straddle(
    side: SideArrays, pool: Pool, label: int, c: int, begin: int, m: IntArray, limits: IntArray
) -> None:
    """Remember that class `c` may be on its way back across the cut, from `begin` on."""
    last = side.prefix.size - 1
    if _weight(side.size, m, side.spans, last) < side.required[last]:
        return
    for other in range(m.size):
        if m[other] + (other == c) > side.eligible[other]:
            return
    end = max(begin, pool.s[label] + side.prefix[last])
    if end > limits[2]:
        return
    row = pool.counters[STRADDLES]
    pool.counters[STRADDLES] += 1
    pool.straddle[row, 0] = label
    pool.straddle[row, 1] = c
    pool.straddle[row, 2] = begin
    pool.counters[BEST] = min(pool.counters[BEST], end)


@inlined
def _expand_back(
    side: SideArrays,
    pool: Pool,
    label: int,
    m: IntArray,
    key: IntArray,
    mask: IntArray,
    limits: IntArray,
) -> None:
    t, s, k = max(pool.t[label], pool.r[label]), pool.s[label], pool.k[label]
    first = k
    while first > 0 and s + side.prefix[first] > t:
        first -= 1
    for c in range(m.size):
        if m[c] == 0:
            continue
        r = m[c] - 1
        opens = side.opens[c, r]
        if opens >= k:
            continue
        begin = max(t, s + side.prefix[opens + 1])
        bit = side.tracked[c] << (c % 62)
        had = mask[c // 62] & bit
        unit = np.int64(1) << side.shift[c]
        mask[c // 62] |= bit
        key[side.word[c]] -= unit
        m[c] -= 1
        for j in range(max(first, opens + 1), min(k, side.closes[c, r])):
            if side.size[c] + pool.need[j] > 0 and s + side.prefix[j + 1] > begin:
                _enter_return(side, pool, label, c, begin, j, m, key, mask, limits)
                begin = s + side.prefix[j + 1]
        _enter_return(side, pool, label, c, begin, k, m, key, mask, limits)
        if k == side.prefix.size - 1 and not side.duplex:
            _note_straddle(side, pool, label, c, begin, m, limits)
        m[c] += 1
        key[side.word[c]] += unit
        mask[c // 62] = (mask[c // 62] & ~bit) | had


@inlined
def _note_final(side: SideArrays, pool: Pool, label: int, m: IntArray) -> None:
    last = side.prefix.size - 1
    if _weight(side.size, m, side.spans, last) < side.required[last]:
        return
    for c in range(m.size):
        if m[c] > side.eligible[c]:
            return
    pool.final[pool.counters[FINALS]] = label
    pool.counters[FINALS] += 1
    end = max(pool.s[label] + side.prefix[last], pool.t[label])
    pool.counters[BEST] = min(pool.counters[BEST], end)


@plain
def run(side: SideArrays, pool: Pool, limits: IntArray, budget: int) -> int:
    """Expand labels within the limits until there are none, or `budget` of them, or no room.

    `limits`: on ``fv`` and ``ft`` now, and the absolute ones beyond which labels are forgotten.
    """
    classes = side.size.size
    last = side.prefix.size - 1
    m, key, mask = pool.m, pool.at_key, pool.at_mask
    room = classes * (last + 3)
    while pool.counters[HEAP] > 0:
        if (
            pool.counters[LABELS] + room > pool.t.size
            or pool.counters[STRADDLES] + classes > pool.straddle.shape[0]
            or 2 * (pool.counters[BUCKETS] + room) > pool.table.size
        ):
            return FULL
        if budget == 0:
            return PAUSED
        label = take(pool)
        if pool.alive[label] == 0:
            continue
        budget -= 1
        pool.counters[POPPED] += 1
        for i in range(key.size):
            key[i] = pool.key[label, i]
        for i in range(mask.size):
            mask[i] = pool.mask[label, i]
        decode(side, key, m)
        if pool.k[label] == last:
            _note_final(side, pool, label, m)
        _look(side, pool)
        _expand_out(side, pool, label, m, key, mask, limits)
        _expand_back(side, pool, label, m, key, mask, limits)
    return DONE


@plain
def resume(pool: Pool, limits: IntArray) -> None:
    """Put the deferred labels that are within the limits now on the heap; forget hopeless ones."""
    kept = 0
    for i in range(pool.counters[DEFERRED]):
        label = pool.deferred[i]
        if pool.alive[label] == 0 or pool.fv[label] > limits[2] or pool.ft[label] > limits[3]:
            continue
        if pool.fv[label] <= limits[0] and pool.ft[label] <= limits[1]:
            wait(pool, label)
        else:
            pool.deferred[kept] = label
            kept += 1
    pool.counters[DEFERRED] = kept
