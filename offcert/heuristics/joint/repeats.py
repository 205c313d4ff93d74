"""Stretches of a network that repeat, and doing everywhere in them what is done once, compiled.

The layers of a transformer are equal, and so is most of what good plans do with them. One layer
after the other, a search would have to find that again dozens of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, inlined
from offcert.heuristics.joint.segments import copy_inside, remove, step
from offcert.heuristics.joint.state import JointState
from offcert.heuristics.joint.tables import Tables

# Computations of the longest period that is looked for, and the fewest computations of a stretch,
# its copies together. Arbitrary.
_LONGEST, _FEWEST = 512, 4
# The chance that a change goes to whole tiles of several copies, and the copies of a tile, at most.
# Arbitrary.
_TILES, _MOST = 0.15, 4


class Repeats(NamedTuple):
    """Stretches of equal copies: equal durations and workspaces, and sizes of what they make.

    What copies read is not compared: the first layer reads what no layer has made.
    """

    # One entry a stretch. Where its first copy begins, the computations of a copy, and how many
    # copies there are.
    first: IntArray
    period: IntArray
    copies: IntArray
    value_first: IntArray  # One entry a stretch and one more. Its rows of ``value``.
    value: IntArray  # Values that a stretch makes, copy by copy, in the same order in each.
    home: IntArray  # One entry a computation. The stretch that it lies in, or -1.
    maker: IntArray  # One entry a value. The computation that makes it, or -1.


def repeats_of(tables: Tables) -> Repeats:
    """Return the stretches of a network that repeat, the longest ones where several overlap."""
    found = list(_stretches(tables))
    home = np.full(len(tables.duration), -1, dtype=np.int64)
    maker = np.full(len(tables.size), -1, dtype=np.int64)
    for computation, row in enumerate(pairwise(tables.write_first.tolist())):
        maker[tables.write[slice(*row)]] = computation
    rows = []
    for number, (first, period, count) in enumerate(found):
        end = first + period * count
        home[first:end] = number
        rows.append(tables.write[tables.write_first[first] : tables.write_first[end]])
    firsts, periods, copies = np.array(found, dtype=np.int64).reshape(len(found), 3).T.copy()
    value_first = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    value = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
    return Repeats(firsts, periods, copies, value_first, value, home, maker)


def _stretches(tables: Tables) -> Iterator[tuple[int, int, int]]:
    """Yield first computation, period and number of copies of each stretch."""
    same = _classes(tables)
    waiting = [(0, len(same))]
    while waiting:
        begin, end = waiting.pop()
        found = _longest(same[begin:end])
        if found is None:
            continue
        first, period, count, spare = found
        first = _aligned(tables, begin + first, period, spare)
        yield first, period, count
        waiting += [(begin, first), (first + period * count, end)]


def _classes(tables: Tables) -> IntArray:
    """Return numbers that are equal for equal computations; none is for what cannot run again."""
    numbers: dict[tuple[int, ...], int] = {}
    same = np.zeros(len(tables.duration), dtype=np.int64)
    for index, row in enumerate(pairwise(tables.write_first.tolist())):
        written = tables.write[slice(*row)]
        columns = (tables.duration, tables.workspace, tables.lean, tables.repeatable, tables.frozen)
        key = tuple(int(column[index]) for column in columns)
        key += (*tables.size[written].tolist(), *tables.evictable[written].tolist())
        if not tables.repeatable[index]:
            key = (-1, index)
        same[index] = numbers.setdefault(key, len(numbers))
    return same


def _longest(same: IntArray) -> tuple[int, int, int, int] | None:
    """Return where copies begin, their period and number, and by how much they may begin later."""
    best = None
    most = _FEWEST - 1
    for period in range(1, min(_LONGEST, len(same) // 2) + 1):
        equal = np.zeros(len(same) - period + 2, dtype=np.int8)
        equal[1:-1] = same[:-period] == same[period:]
        edges = np.flatnonzero(np.diff(equal))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            count = (end - begin) // period + 1
            if count > 1 and count * period > most:
                most = count * period
                best = (begin, period, count, (end - begin) % period)
    return best


def _aligned(tables: Tables, first: int, period: int, spare: int) -> int:
    """Return the beginning of the first copy with which most segments may lie inside of it."""

    def inside(shift: int) -> int:
        begin = first + shift
        beyond = (tables.range_first < begin) | (tables.range_last >= begin + period)
        return int(len(beyond) - np.count_nonzero(beyond))

    return first + max(range(spare + 1), key=inside)


@inlined
def spread(
    tables: Tables, repeats: Repeats, before: JointState, state: JointState, parts: int
) -> bool:
    """Do in other copies what has just been changed in one; return whether it was in one.

    The stretch is divided in `parts` groups of copies, and it is done in all of one; if 0, in any
    number of copies anywhere.
    """
    changed = _changed(repeats, before, state)
    if changed < 0 or repeats.home[changed] < 0:
        return False
    stretch = repeats.home[changed]
    count = repeats.copies[stretch]
    copy = (changed - repeats.first[stretch]) // repeats.period[stretch]
    tile = 1
    if parts > 0:
        group = (count + parts - 1) // parts
        begin = copy // group * group
        end = min(count, begin + group)
    else:
        if np.random.random() < _TILES:
            tile = min(1 + step(_MOST - 1), count - copy)
        length = step(count)
        begin = np.random.randint(0, count - length + 1)
        end = begin + length
    place = copy % tile
    while place + tile <= end:
        if place >= begin and place != copy:
            take_over(tables, repeats, state, (stretch, copy, place, tile))
        place += tile
    return True


@inlined
def _changed(repeats: Repeats, before: JointState, state: JointState) -> int:
    """Return a computation at which something differs, or -1."""
    for computation in range(state.kept.size):
        if state.kept[computation] != before.kept[computation]:
            return computation
    for index in range(max(state.number[0], before.number[0])):
        if index >= state.number[0]:
            return int(before.first[index])
        first, last = state.first[index], state.last[index]
        if index >= before.number[0] or first != before.first[index] or last != before.last[index]:
            return int(first)
    for value in range(state.stays.size):
        if state.stays[value] != before.stays[value]:
            return int(repeats.maker[value])
    return -1


@inlined
def take_over(
    tables: Tables, repeats: Repeats, state: JointState, which: tuple[int, int, int, int]
) -> None:
    """Do in some copies what is done in as many others, with all segments inside of them.

    Which: the stretch, the first copy of the model, the first that is changed, and how many.
    """
    stretch, model, copy, tile = which
    period, length = repeats.period[stretch], tile * repeats.period[stretch]
    low = repeats.first[stretch] + model * period
    begin = repeats.first[stretch] + copy * period
    shift = begin - low
    for index in range(state.number[0] - 1, -1, -1):
        first, last = state.first[index], state.last[index]
        outside = last < begin or first >= begin + length
        around = first <= begin and last >= begin + length - 1 and last - first >= length
        if not (outside or around):
            remove(state, index)
    copy_inside(tables, state, low, low + length - 1, shift)
    made = (repeats.value_first[stretch + 1] - repeats.value_first[stretch]) // repeats.copies[
        stretch
    ]
    base = repeats.value_first[stretch]
    for place in range(made * tile):
        value = repeats.value[base + made * model + place]
        state.stays[repeats.value[base + made * copy + place]] = state.stays[value]
