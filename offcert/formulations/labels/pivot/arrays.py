"""Memory of the pivot dynamic program: sides as arrays, and pools of labels with their heap."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, inlined, plain, plain_inner
from offcert.core.platform import Kind
from offcert.formulations.labels.common import Ints32, place_of, pop, push
from offcert.formulations.labels.pivot.model import NestedProblem, NestedSide

# Places in `LabelPool.counters`.
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

    prefix: IntArray
    required: IntArray
    idle_required: IntArray
    floor: IntArray
    size: IntArray
    time_out: IntArray
    time_back: IntArray
    here: IntArray
    eligible: IntArray
    available: IntArray
    opens: IntArray
    closes: IntArray
    deadline: IntArray
    spans: IntArray
    between: IntArray
    event_at: IntArray
    event_class: IntArray
    event_rank: IntArray
    event_bytes: IntArray
    due_at: IntArray
    due_class: IntArray
    due_rank: IntArray
    way_class: IntArray
    way_rank: IntArray
    way_head: IntArray
    way_at: IntArray
    least_head: IntArray
    rate_out: IntArray
    rate_back: IntArray
    word: IntArray
    shift: IntArray
    tracked: IntArray


class LabelPool(NamedTuple):
    """The labels of a side, the structures over them, and scratch space (from ``m`` on).

    By label: ``t``, ``s``, ``k``, both bounds, the ``parent``, the ``action`` that led here (class
    + 1 out, minus that back, 0 for the root), whether it is ``alive`` or dominated, the next one
    with the same counts (``following``), the packed counts (``key``) and the ``mask``. ``table``
    hashes keys to labels; ``straddle`` lists label, class and start of returns across the cut.
    """

    t: IntArray
    s: IntArray
    k: Ints32
    parent: Ints32
    action: Ints32
    alive: NDArray[np.int8]
    fv: IntArray
    ft: IntArray
    following: Ints32
    key: IntArray
    mask: IntArray
    table: Ints32
    heap: Ints32
    deferred: Ints32
    final: Ints32
    straddle: IntArray
    counters: IntArray
    m: IntArray
    need: IntArray
    owed: IntArray
    way_sum: IntArray
    way_before: IntArray
    way_after: IntArray
    excess: IntArray
    at_key: IntArray
    at_mask: IntArray


@plain_inner
def bucket(pool: LabelPool, key: IntArray) -> int:
    """Return the first label with these counts, or -1; `pool.following` leads to the others."""
    return pool.table[place_of(pool.table, pool.key, key)]


@plain
def rebuild(old: Ints32, new: LabelPool) -> None:
    """Enter the buckets of one table into another, larger one."""
    for i in range(old.size):
        head = old[i]
        if head >= 0:
            new.table[place_of(new.table, new.key, new.key[head])] = head


@inlined
def _subset(pool: LabelPool, label: int, mask: IntArray) -> bool:
    """Whether `mask` has every class that has returned in `label`."""
    for i in range(mask.size):  # noqa: SIM110, compiled code has no generators
        if pool.mask[label, i] & ~mask[i]:
            return False
    return True


@inlined
def _superset(pool: LabelPool, label: int, mask: IntArray) -> bool:
    for i in range(mask.size):  # noqa: SIM110
        if mask[i] & ~pool.mask[label, i]:
            return False
    return True


@inlined
def wait(pool: LabelPool, label: int) -> None:
    """Put a label on the heap, the least ``t`` first."""
    push(pool.heap, pool.counters[HEAP], label, pool.t, pool.t)
    pool.counters[HEAP] += 1


@inlined
def take(pool: LabelPool) -> int:
    """Take the first label off the heap."""
    label = pop(pool.heap, pool.counters[HEAP], pool.t, pool.t)
    pool.counters[HEAP] -= 1
    return label


@inlined
def enter(
    pool: LabelPool,
    key: IntArray,
    mask: IntArray,
    t: int,
    s: int,
    k: int,
    fv: int,
    ft: int,
    parent: int,
    action: int,
    limits: IntArray,
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
def decode(side: SideArrays, key: IntArray, m: IntArray) -> None:
    """Write the counts of a key to `m`."""
    for c in range(m.size):
        after = side.shift[c + 1] if side.word[c + 1] == side.word[c] else 62
        m[c] = (key[side.word[c]] >> side.shift[c]) & ((np.int64(1) << (after - side.shift[c])) - 1)


# Bits of a word of a key, and of a mask, that are used, so that the sign stays free; labels that a
# store has room for at first. By definition.
WORD = 62
FIRST_CAPACITY = 1 << 12


def pack(data: NestedProblem) -> tuple[IntArray, IntArray]:
    """Return word and shift of each class's count in a key, with a sentinel at the end."""
    word, shift, place = [], [], 0
    for members in data.classes:
        bits = len(members).bit_length()
        if place % WORD + bits > WORD:
            place += WORD - place % WORD
        word.append(place // WORD)
        shift.append(place % WORD)
        place += bits
    return np.array([*word, -1], np.int64), np.array([*shift, 0], np.int64)


def side_arrays(
    data: NestedProblem, side: NestedSide, other: NestedSide, tracked: frozenset[int] = frozenset()
) -> SideArrays:
    """Return the numbers of `side` as arrays.

    `other` is where what is out must return; `tracked` are the classes that may not leave again
    after they have returned.
    """
    word, shift = pack(data)
    events = _events(data, side)
    due = _due(side)
    # By availability, not by nesting: unequal tensors may disagree about the two.
    way = sorted((other.available[c][r], c, r) for c, r in data.items if r < side.eligible[c])[::-1]
    heads = [other.prefix[available + 1] for available, _, _ in way]
    return SideArrays(
        prefix=_array(side.prefix),
        required=_array(side.required),
        idle_required=_array(side.idle_required),
        floor=_array(side.floor),
        size=_array([members[0].size for members in data.classes]),
        time_out=_times(data, side.out),
        time_back=_times(data, side.back),
        here=_array(side.count),
        eligible=_array(side.eligible),
        available=_table(side.available),
        opens=_table(side.opens),
        closes=_table(side.closes),
        deadline=_table(side.deadline),
        spans=_table(side.spans),
        between=_table(side.between),
        event_at=events[0],
        event_class=events[1],
        event_rank=events[2],
        event_bytes=events[3],
        due_at=due[0],
        due_class=due[1],
        due_rank=due[2],
        way_class=_array([c for _, c, _ in way]),
        way_rank=_array([r for _, _, r in way]),
        way_head=_array(heads),
        way_at=_places(data, way),
        least_head=_array([min(heads, default=0)]),
        rate_out=_rate(data.problem.platform.rate(side.out)),
        rate_back=_rate(data.problem.platform.rate(side.back)),
        word=word,
        shift=shift,
        tracked=_array([int(c in tracked) for c in range(len(data.classes))]),
    )


def _places(data: NestedProblem, way: Sequence[tuple[int, int, int]]) -> IntArray:
    """Return by class and rank where a tensor stands in `way`, -1 if it does not."""
    places = [[-1] * len(members) for members in data.classes]
    for place, (_, c, r) in enumerate(way):
        places[c][r] = place
    return _table(places)


def _times(data: NestedProblem, kind: Kind) -> IntArray:
    ticks = data.problem.platform.transfer_time
    return _array([ticks(members[0].size, kind) for members in data.classes])


def _array(values: Sequence[int]) -> IntArray:
    return np.array(values, np.int64)


def _table(rows: Sequence[Sequence[int]]) -> IntArray:
    table = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def _rate(bandwidth: Fraction) -> IntArray:
    """Return numerator and denominator, made small enough for 64 bits by rounding the rate up."""
    numerator, denominator = bandwidth.numerator, bandwidth.denominator
    if numerator * max(numerator, denominator) < 2**62:
        return _array([numerator, denominator])
    # A power of two as the new numerator; the denominator (ticks) is rounded down.
    bits = 30
    while bits > 0 and (denominator << 2 * bits) // numerator >= 2**61:
        bits -= 1
    return _array([1 << bits, (denominator << bits) // numerator])


def _events(data: NestedProblem, side: NestedSide) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """For each column of ``side.spans``, the tensors by which it differs from the one before."""
    at, rows = [0, 0], []
    for j in range(1, side.operations + 1):
        for c, spans in enumerate(side.spans):
            # Both columns count the tensors whose gap contains the operation. With nested gaps
            # around the turn they are prefixes, so the difference is a range of ranks.
            size = data.classes[c][0].size
            rows += [(c, r, size) for r in range(spans[j - 1], spans[j])]
            rows += [(c, r, -size) for r in range(spans[j], spans[j - 1])]
        at.append(len(rows))
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return _array(at), *(_array(column) for column in columns)  # type: ignore[return-value]


def _due(side: NestedSide) -> tuple[IntArray, IntArray, IntArray]:
    at, rows = [0], []
    for j in range(side.operations + 1):
        for c, deadlines in enumerate(side.deadline):
            rows += [(c, r) for r in range(side.count[c]) if deadlines[r] == j < side.operations]
        at.append(len(rows))
    return _array(at), _array([c for c, _ in rows]), _array([r for _, r in rows])


def new_pool(arrays: SideArrays) -> LabelPool:
    """Return an empty pool."""
    words = int(arrays.word[:-1].max()) + 1
    masks = -(-arrays.size.size // WORD)
    classes, columns, tensors = arrays.size.size, arrays.prefix.size, arrays.way_class.size
    capacity = max(FIRST_CAPACITY, 1 << (4 * classes * (columns + 2)).bit_length())
    pool = LabelPool(
        t=np.empty(capacity, np.int64),
        s=np.empty(capacity, np.int64),
        k=np.empty(capacity, np.int32),
        parent=np.empty(capacity, np.int32),
        action=np.empty(capacity, np.int32),
        alive=np.empty(capacity, np.int8),
        fv=np.empty(capacity, np.int64),
        ft=np.empty(capacity, np.int64),
        following=np.empty(capacity, np.int32),
        key=np.empty((capacity, words), np.int64),
        mask=np.empty((capacity, masks), np.int64),
        table=np.full(2 * capacity, -1, np.int32),
        heap=np.empty(capacity, np.int32),
        deferred=np.empty(capacity, np.int32),
        final=np.empty(capacity, np.int32),
        straddle=np.empty((capacity, 3), np.int64),
        counters=np.zeros(8, np.int64),
        m=np.zeros(classes, np.int64),
        need=np.zeros(columns, np.int64),
        owed=np.zeros(columns, np.int64),
        way_sum=np.zeros(tensors + 1, np.int64),
        way_before=np.zeros(tensors + 1, np.int64),
        way_after=np.zeros(tensors + 1, np.int64),
        excess=np.zeros(1, np.int64),
        at_key=np.zeros(words, np.int64),
        at_mask=np.zeros(masks, np.int64),
    )
    pool.counters[BEST] = NEVER
    return pool


def grown(pool: LabelPool) -> LabelPool:
    """Return the pool with twice the room."""
    capacity = 2 * pool.t.size
    larger = {}
    for name, array in pool._asdict().items():
        if array.shape[0] != pool.t.size:
            # The table, which is rebuilt, and what does not grow.
            continue
        copy = np.empty((capacity, *array.shape[1:]), array.dtype)
        copy[: array.shape[0]] = array
        larger[name] = copy
    new = pool._replace(table=np.full(2 * capacity, -1, np.int32), **larger)
    rebuild(pool.table, new)
    return new
