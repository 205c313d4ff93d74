"""A side as arrays for the compiled searches, and which of its classes they count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offcert.formulations.labels.atomic_heads import completion
from offcert.formulations.labels.atomic_heads.kernel import Ints, Tables
from offcert.formulations.labels.atomic_heads.side import HeadSide, Mover

# Bits of each of the key's two words that count; the sign stays free.
_BITS = 62
# Amounts that have left are told apart by `completion` up to so many levels.
_MOST_LEVELS = 1 << 17

Classes = Sequence[tuple[int, list[Mover]]]


def uncounted(side: HeadSide, classes: Classes, unit: int) -> Tables:
    """Return a side as arrays, with no class counted, and all ways to its end.

    Parameters
    ----------
    side : HeadSide
        Of any pivot.
    classes : sequence of (int, list of Mover)
        Its items by size, each list in the order of readiness.
    unit : int
        To whose multiples sizes are rounded up.
    """
    size = [-(-number // unit) for number, _ in classes]
    time = _array([items[0].time for _, items in classes])
    ready = _ready([items for _, items in classes])
    levels = -(-max(side.required) // unit)
    grain = max(1, -(-levels // _MOST_LEVELS))
    prefix, required, floor, rate = map(_array, (side.prefix, side.required, side.floor, side.rate))
    coarse = [-(-number // grain) for number in size]
    first, link, idle = completion.ways(
        prefix,
        floor,
        _run(side.required, grain * unit),
        completion.still_missing(prefix, required, floor, rate, grain * unit, -(-levels // grain)),
        _most(side, classes, coarse),
        _array(coarse),
        time,
        ready[:, 0].copy(),
    )
    nothing = np.zeros(len(classes), np.int64)
    return Tables(
        prefix=prefix,
        required=required,
        floor=floor,
        most=_most(side, classes, size),
        size=_array(size),
        time=time,
        ready=ready,
        amount=_array([len(items) for _, items in classes]),
        word=nothing,
        shift=nothing,
        mask=nothing,
        rate=rate,
        unit=unit,
        grain=grain,
        first=first,
        link=link,
        idle=idle,
    )


def counting(tables: Tables, classes: Classes, counted: Sequence[int]) -> Tables | None:
    """Return the arrays with the classes of these sizes counted; None if the key has no room."""
    places = {}
    free = [0, 0]
    amounts = {size: len(items) for size, items in classes}
    for size in counted:
        bits = amounts[size].bit_length()
        emptier = 0 if free[0] <= free[1] else 1
        if free[emptier] + bits > _BITS:
            return None
        places[size] = (emptier, free[emptier], (1 << bits) - 1)
        free[emptier] += bits
    columns = _array([places.get(size, (0, 0, 0)) for size, _ in classes]).reshape(-1, 3)
    word, shift, mask = (column.copy() for column in columns.T)
    return tables._replace(word=word, shift=shift, mask=mask)


def _most(side: HeadSide, classes: Classes, sizes: Sequence[int]) -> Ints:
    """Return, for each number of operations run, all of `sizes` that is ready then."""
    most = np.zeros(len(side.prefix), np.int64)
    for (_, items), size in zip(classes, sizes, strict=True):
        for item in items:
            most[item.ready + 1 :] += size
    return most


def _run(required: Sequence[int], grid: int) -> Ints:
    """Return how many operations can run, for each number of levels of `grid` bytes that left."""
    reach = np.maximum.accumulate(_array(required))
    amounts = grid * np.arange(-(-int(reach[-1]) // grid) + 1)
    return np.searchsorted(reach[:-1], amounts, side="right").astype(np.int64)


def _ready(classes: Sequence[list[Mover]]) -> Ints:
    table = np.zeros((len(classes), max(map(len, classes), default=1)), np.int64)
    for row, items in zip(table, classes, strict=True):
        row[: len(items)] = [item.ready for item in items]
    return table


def _array(values: object) -> Ints:
    return np.array(values, dtype=np.int64)
