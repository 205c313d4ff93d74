"""Memory of the pivot dynamic program: sides as arrays, and pools of labels with their heap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, plain_inner
from offcert.core.platform import Kind
from offcert.formulations.labels.pivot.model import NestedProblem, NestedSide
from offcert.formulations.labels.store import FIRST_CAPACITY, Pool, new_store, store_with


class SideArrays(NamedTuple):
    """A side (``model.NestedSide``) as arrays; ``events``: what changes between two operations.

    ``way_*`` lists the tensors that may be out at the cut, with the time from which on the other
    side's link can take each, latest first; ``way_at`` tells by class and rank where a tensor
    stands in that list (-1 if it may not be out). ``rate_*`` hold numerator and denominator of the
    link's rate in that direction, or of an upper bound on it. ``duplex`` is 1 if both directions
    run at once.
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
    duplex: int


# The labels of a side, as in `store.Store`, and more. The keys are packed counts, the action is
# class + 1 out, minus that back, 0 for the root; `held` tells how many operations had run when the
# next one last waited for a return (duplex). Final labels are listed in `final`, and in
# `straddle` label, class and start of returns across the cut; from `m` on follows scratch space.
LabelPool = store_with(
    "LabelPool",
    __name__,
    "final straddle m need owed way_sum way_before way_after excess at_key at_mask",
)


@plain_inner
def decode(side: SideArrays, key: IntArray, m: IntArray) -> None:
    """Write the counts of a key to `m`."""
    for c in range(m.size):
        after = side.shift[c + 1] if side.word[c + 1] == side.word[c] else 62
        m[c] = (key[side.word[c]] >> side.shift[c]) & ((np.int64(1) << (after - side.shift[c])) - 1)


# Bits of a word of a key, and of a mask, that are used, so that the sign stays free. By definition.
WORD = 62


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


# What both have under the same name, by operation or class, and by class and then another number.
_ROWS = ("prefix", "required", "idle_required", "floor", "eligible")
_TABLES = ("available", "opens", "closes", "deadline", "spans", "between")


def side_arrays(
    data: NestedProblem, side: NestedSide, other: NestedSide, tracked: frozenset[int] = frozenset()
) -> SideArrays:
    """Return the numbers of `side` as arrays.

    `other` is where what is out must return; `tracked` are the classes that may not leave again
    after they have returned.
    """
    word, shift = pack(data)
    events, due = _events(data, side), _due(side)
    # By availability, not by nesting: unequal tensors may disagree about the two.
    way = sorted((other.available[c][r], c, r) for c, r in data.items if r < side.eligible[c])[::-1]
    heads = [other.prefix[available + 1] for available, _, _ in way]
    return SideArrays(
        **{name: _array(getattr(side, name)) for name in _ROWS},
        **{name: _table(getattr(side, name)) for name in _TABLES},
        **dict(zip(("event_at", "event_class", "event_rank", "event_bytes"), events, strict=True)),
        **dict(zip(("due_at", "due_class", "due_rank"), due, strict=True)),
        size=_array([members[0].size for members in data.classes]),
        time_out=_times(data, side.out),
        time_back=_times(data, side.back),
        here=_array(side.count),
        way_class=_array([c for _, c, _ in way]),
        way_rank=_array([r for _, _, r in way]),
        way_head=_array(heads),
        way_at=_places(data, way),
        least_head=_array([min(heads, default=0)]),
        rate_out=_array(side.rates[0]),
        rate_back=_array(side.rates[1]),
        word=word,
        shift=shift,
        tracked=_array([int(c in tracked) for c in range(len(data.classes))]),
        duplex=int(data.problem.platform.duplex),
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


def new_pool(arrays: SideArrays) -> Pool:
    """Return an empty pool."""
    words = int(arrays.word[:-1].max()) + 1
    masks = -(-arrays.size.size // WORD)
    classes, columns, tensors = arrays.size.size, arrays.prefix.size, arrays.way_class.size
    capacity = max(FIRST_CAPACITY, 1 << (4 * classes * (columns + 2)).bit_length())
    store = new_store(capacity, words, masks)
    return LabelPool(
        *store,
        final=np.empty(capacity, np.int32),
        straddle=np.empty((capacity, 3), np.int64),
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
