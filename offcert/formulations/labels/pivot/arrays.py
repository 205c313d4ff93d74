"""Memory of the pivot dynamic program: sides as arrays, and pools of labels that grow."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from offcert.core.platform import Kind
from offcert.formulations.labels.pivot import pool as store
from offcert.formulations.labels.pivot.model import Nested, NestedSide
from offcert.formulations.labels.pivot.pool import Ints, Pool, SideArrays

# Bits of a word of a key, and of a mask, that are used, so that the sign stays free; labels that a
# store has room for at first. By definition.
WORD = 62
FIRST_CAPACITY = 1 << 12


def pack(data: Nested) -> tuple[Ints, Ints]:
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
    data: Nested, side: NestedSide, other: NestedSide, tracked: frozenset[int] = frozenset()
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


def _places(data: Nested, way: Sequence[tuple[int, int, int]]) -> Ints:
    """Return by class and rank where a tensor stands in `way`, -1 if it does not."""
    places = [[-1] * len(members) for members in data.classes]
    for place, (_, c, r) in enumerate(way):
        places[c][r] = place
    return _table(places)


def _times(data: Nested, kind: Kind) -> Ints:
    ticks = data.problem.platform.transfer_time
    return _array([ticks(members[0].size, kind) for members in data.classes])


def _array(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def _table(rows: Sequence[Sequence[int]]) -> Ints:
    table = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def _rate(bandwidth: Fraction) -> Ints:
    """Return numerator and denominator, made small enough for 64 bits by rounding the rate up."""
    numerator, denominator = bandwidth.numerator, bandwidth.denominator
    if numerator * max(numerator, denominator) < 2**62:
        return _array([numerator, denominator])
    # A power of two as the new numerator; the denominator (ticks) is rounded down.
    bits = 30
    while bits > 0 and (denominator << 2 * bits) // numerator >= 2**61:
        bits -= 1
    return _array([1 << bits, (denominator << bits) // numerator])


def _events(data: Nested, side: NestedSide) -> tuple[Ints, Ints, Ints, Ints]:
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


def _due(side: NestedSide) -> tuple[Ints, Ints, Ints]:
    at, rows = [0], []
    for j in range(side.operations + 1):
        for c, deadlines in enumerate(side.deadline):
            rows += [(c, r) for r in range(side.count[c]) if deadlines[r] == j < side.operations]
        at.append(len(rows))
    return _array(at), _array([c for c, _ in rows]), _array([r for _, r in rows])


def new_pool(arrays: SideArrays) -> Pool:
    """Return an empty pool."""
    words = int(arrays.word[:-1].max()) + 1
    masks = -(-arrays.size.size // WORD)
    classes, columns = arrays.size.size, arrays.prefix.size
    pool = _allocate(_capacity(arrays), words, masks, classes, columns, arrays.way_class.size)
    pool.counters[store.BEST] = store.NEVER
    return pool


def _capacity(arrays: SideArrays) -> int:
    room = arrays.size.size * (arrays.prefix.size + 2)
    return max(FIRST_CAPACITY, 1 << (4 * room).bit_length())


def _allocate(
    capacity: int, words: int, masks: int, classes: int, columns: int, tensors: int
) -> Pool:
    return Pool(
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


def grown(pool: Pool) -> Pool:
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
    store.rebuild(pool.table, new)
    return new
