"""Labels of the pivot dynamic program: their store, their buckets and the heap over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import inlined, plain, plain_inner
from offcert.formulations.common.stores import Ints, Ints32, place_of, pop, push

# Places in `Pool.counters`.
LABELS, HEAP, DEFERRED, BUCKETS, FINALS, STRADDLES, BEST, POPPED = range(8)

# Larger than every time, and far enough from overflow to add two.
NEVER = np.int64(2**62 - 1)


class SideArrays(NamedTuple):
    """A side (``model.NestedSide``) as arrays; ``events``: what changes between two operations.

    ``way_*`` lists the tensors that may be out at the cut, with the time from which on the other
    side's link can take each, latest first; ``way_at`` tells by class and rank where a tensor
    stands in that list (-1 if it may not be out). ``rate_*`` hold numerator and denominator of the
    link's rate in that direction, or of an upper bound on it.
    """

    prefix: Ints
    required: Ints
    idle_required: Ints
    floor: Ints
    size: Ints
    time_out: Ints
    time_back: Ints
    here: Ints
    eligible: Ints
    available: Ints
    opens: Ints
    closes: Ints
    deadline: Ints
    spans: Ints
    between: Ints
    event_at: Ints
    event_class: Ints
    event_rank: Ints
    event_bytes: Ints
    due_at: Ints
    due_class: Ints
    due_rank: Ints
    way_class: Ints
    way_rank: Ints
    way_head: Ints
    way_at: Ints
    least_head: Ints
    rate_out: Ints
    rate_back: Ints
    word: Ints
    shift: Ints
    tracked: Ints


class Pool(NamedTuple):
    """The labels of a side, the structures over them, and scratch space (from ``m`` on).

    By label: ``t``, ``s``, ``k``, both bounds, the ``parent``, the ``action`` that led here (class
    + 1 out, minus that back, 0 for the root), whether it is ``alive`` or dominated, the next one
    with the same counts (``following``), the packed counts (``key``) and the ``mask``. ``table``
    hashes keys to labels; ``straddle`` lists label, class and start of returns across the cut.
    """

    t: Ints
    s: Ints
    k: Ints32
    parent: Ints32
    action: Ints32
    alive: NDArray[np.int8]
    fv: Ints
    ft: Ints
    following: Ints32
    key: Ints
    mask: Ints
    table: Ints32
    heap: Ints32
    deferred: Ints32
    final: Ints32
    straddle: Ints
    counters: Ints
    m: Ints
    need: Ints
    owed: Ints
    way_sum: Ints
    way_before: Ints
    way_after: Ints
    excess: Ints
    at_key: Ints
    at_mask: Ints


@plain_inner
def bucket(pool: Pool, key: Ints) -> int:
    """Return the first label with these counts, or -1; `pool.following` leads to the others."""
    return pool.table[place_of(pool.table, pool.key, key)]


@plain
def rebuild(old: Ints32, new: Pool) -> None:
    """Enter the buckets of one table into another, larger one."""
    for i in range(old.size):
        head = old[i]
        if head >= 0:
            new.table[place_of(new.table, new.key, new.key[head])] = head


@inlined
def _subset(pool: Pool, label: int, mask: Ints) -> bool:
    """Whether `mask` has every class that has returned in `label`."""
    for i in range(mask.size):  # noqa: SIM110, compiled code has no generators
        if pool.mask[label, i] & ~mask[i]:
            return False
    return True


@inlined
def _superset(pool: Pool, label: int, mask: Ints) -> bool:
    for i in range(mask.size):  # noqa: SIM110
        if mask[i] & ~pool.mask[label, i]:
            return False
    return True


@inlined
def wait(pool: Pool, label: int) -> None:
    """Put a label on the heap, the least ``t`` first."""
    push(pool.heap, pool.counters[HEAP], label, pool.t, pool.t)
    pool.counters[HEAP] += 1


@inlined
def take(pool: Pool) -> int:
    """Take the first label off the heap."""
    label = pop(pool.heap, pool.counters[HEAP], pool.t, pool.t)
    pool.counters[HEAP] -= 1
    return label


@inlined
def enter(
    pool: Pool,
    key: Ints,
    mask: Ints,
    t: int,
    s: int,
    k: int,
    fv: int,
    ft: int,
    parent: int,
    action: int,
    limits: Ints,
) -> None:
    """Add a label unless it is hopeless or dominated; drop those that it dominates."""
    if fv > limits[2] or ft > limits[3]:
        return
    place = place_of(pool.table, pool.key, key)
    head = pool.table[place]
    previous = -1
    label = head
    while label >= 0:
        after = pool.following[label]
        lt, ls, lk = pool.t[label], pool.s[label], pool.k[label]
        if lt <= t and ls <= s and lk >= k and _subset(pool, label, mask):
            return
        if t <= lt and s <= ls and k >= lk and _superset(pool, label, mask):
            pool.alive[label] = 0
            if previous < 0:
                head = after
            else:
                pool.following[previous] = after
        else:
            previous = label
        label = after
    new = pool.counters[LABELS]
    pool.counters[LABELS] += 1
    if pool.table[place] < 0:
        pool.counters[BUCKETS] += 1
    pool.t[new], pool.s[new], pool.k[new] = t, s, k
    pool.fv[new], pool.ft[new] = fv, ft
    pool.parent[new], pool.action[new], pool.alive[new] = parent, action, 1
    for i in range(key.size):
        pool.key[new, i] = key[i]
    for i in range(mask.size):
        pool.mask[new, i] = mask[i]
    pool.following[new] = head
    pool.table[place] = new
    if fv <= limits[0] and ft <= limits[1]:
        wait(pool, new)
    else:
        pool.deferred[pool.counters[DEFERRED]] = new
        pool.counters[DEFERRED] += 1


@plain_inner
def decode(side: SideArrays, key: Ints, m: Ints) -> None:
    """Write the counts of a key to `m`."""
    for c in range(m.size):
        after = side.shift[c + 1] if side.word[c + 1] == side.word[c] else 62
        m[c] = (key[side.word[c]] >> side.shift[c]) & ((np.int64(1) << (after - side.shift[c])) - 1)
