"""One side of a pivot as arrays, and how it can still end from every amount that has left.

Take a label whose link is free at ``t`` and whose idle time is ``s``, and the transfers that follow
it. The side ends at ``max(t + link, s + idle)``, where ``link`` and ``idle`` depend on these
transfers alone: every step takes the larger of two sums (it is linear in the max-plus sense). For
the relaxation in which no class is counted, all pairs ``(link, idle)`` that no other is as good as
are found for every amount, from the end to the beginning. The least end over the pairs of an amount
bounds every sequence that passes there, and one of the relaxation attains it. So the first round of
the search needs no search, and later rounds look only at what counting changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined, inlined_and_entered, inner
from offcert.formulations.labels.ends.side import HeadSide, Movable

# Levels up to which the ways to the end tell apart the amounts that have left. Arbitrary.
MOST_LEVELS = 1 << 17
# The largest code. Derived: it fits into 64 bits, here and where it is verified.
LARGEST_CODE = 2**62
# Pairs that are kept for one amount; beyond it, two are replaced by one pair that is as good as
# both. Arbitrary.
_WIDEST = 64


@compiled
def still_missing(
    prefix: IntArray, required: IntArray, floor: IntArray, rate: IntArray, grid: int, levels: int
) -> IntArray:
    """Return, for each level, the least time from when the link is free to the end of the side.

    The first three and `rate` are as in `SideTables`; a level has `grid` bytes.
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
def put(link: IntArray, idle: IntArray, count: int, x: int, y: int) -> int:
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
def _roomier(values: IntArray) -> IntArray:
    larger = np.zeros(2 * values.size, np.int64)
    for index in range(values.size):
        larger[index] = values[index]
    return larger


@compiled
def ways(
    prefix: IntArray,
    floor: IntArray,
    run: IntArray,
    still: IntArray,
    most: IntArray,
    size: IntArray,
    time: IntArray,
    ready: IntArray,
) -> tuple[IntArray, IntArray, IntArray]:
    """Return, for each level, the pairs of least times to the end, and where they begin.

    `run` tells by level how many operations can run, `still` is from `still_missing`, `most` by
    number of operations run the levels of all that is ready then; `size`, `time` and `ready` are
    levels and ticks of each class, and when its first item is ready. The pairs of a level begin at
    ``first`` and end where those of the level below it begin: by ``link`` and ``idle``, at least,
    the end of the side exceeds the time at which the link is free, and the idle time.
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


class SideTables(NamedTuple):
    """A side as arrays: ``K`` operations, ``C`` classes, at most ``R`` items in one.

    ``size`` is in units, rounded up; ``ready[c, r]`` is when the r-th item of a class is
    ready; ``amount`` the number of items; a code holds how many of each class have left, as a digit
    of weight ``radix`` (0: not counted) that has ``base`` values; ``most[k]`` all units ready after
    ``k`` operations; ``rate`` bytes and ticks; ``first``, ``link`` and ``idle`` the ways to the end
    (`ways`) from every level of ``grain`` units.
    """

    prefix: IntArray
    required: IntArray
    floor: IntArray
    most: IntArray
    size: IntArray
    time: IntArray
    ready: IntArray
    amount: IntArray
    base: IntArray
    radix: IntArray
    rate: IntArray
    unit: int
    grain: int
    first: IntArray
    link: IntArray
    idle: IntArray


@inlined
def _ticks(rate: IntArray, amount: int) -> int:
    return -(-amount * rate[1] // rate[0])


@inlined_and_entered
def bound_on_end(side: SideTables, w: int, t: int, s: int, k: int) -> int:
    """Return a bound on the end of a side of which `w` units have left and `k` operations run."""
    level = min(-(-w // side.grain), side.first.size - 1)
    f = 2**62
    # Pairs are stored from the last level to the first.
    end = side.first[level - 1] if level > 0 else side.link.size
    for way in range(side.first[level], end):
        f = min(f, max(t + side.link[way], s + side.idle[way]))
    if side.grain == 1:
        return f
    # To the byte, what is coarser there.
    f = max(f, s + side.floor[k], t)
    missing = 0
    for j in range(k, side.prefix.size):
        if side.required[j] - side.unit * w > missing:
            missing = side.required[j] - side.unit * w
            f = max(f, t + _ticks(side.rate, missing) - side.prefix[j] + side.floor[j])
    return f


@inlined
def rank_of(side: SideTables, code: int, c: int) -> int:
    """Return which tensor of a class is next; of a class that is not counted always the first."""
    if side.radix[c] == 0:
        return 0
    return int(code // side.radix[c] % side.base[c])


@inlined
def transfer(
    side: SideTables, w: int, code: int, t: int, s: int, k: int, c: int
) -> tuple[int, int, int]:
    """Return when the next tensor of a class has left, the idle time and the operations run then.

    The first is -1 if none can leave. `w` units have left before, and `k` operations run.
    """
    rank, more, last = rank_of(side, code, c), w + side.size[c], side.prefix.size - 1
    if rank == side.amount[c] or side.ready[c, rank] >= k or more > side.most[k]:
        return -1, s, k
    end = max(t, s + side.prefix[side.ready[c, rank] + 1]) + side.time[c]
    if k < last and side.unit * more >= side.required[k]:
        s = max(s, end - side.prefix[k])
        while k < last and side.unit * more >= side.required[k]:
            k += 1
    return end, s, k


Classes = Sequence[tuple[int, list[Movable]]]


def uncounted(side: HeadSide, classes: Classes, unit: int) -> SideTables:
    """Return a side as arrays, with no class counted, and all ways to its end.

    `classes` are its items by size, each list in the order of readiness; sizes are rounded up to
    multiples of `unit`.
    """
    size = [-(-number // unit) for number, _ in classes]
    time = _array([items[0].time for _, items in classes])
    ready = _ready([items for _, items in classes])
    levels = -(-max(side.required) // unit)
    grain = max(1, -(-levels // MOST_LEVELS))
    prefix, required, floor, rate = map(_array, (side.prefix, side.required, side.floor, side.rate))
    coarse = [-(-number // grain) for number in size]
    first, link, idle = ways(
        prefix,
        floor,
        _run(side.required, grain * unit),
        still_missing(prefix, required, floor, rate, grain * unit, -(-levels // grain)),
        _most(side, classes, coarse),
        _array(coarse),
        time,
        ready[:, 0].copy(),
    )
    amount = _array([len(items) for _, items in classes])
    return SideTables(
        prefix=prefix,
        required=required,
        floor=floor,
        most=_most(side, classes, size),
        size=_array(size),
        time=time,
        ready=ready,
        amount=amount,
        base=amount + 1,
        radix=np.zeros(len(classes), np.int64),
        rate=rate,
        unit=unit,
        grain=grain,
        first=first,
        link=link,
        idle=idle,
    )


def counting(tables: SideTables, counted: Sequence[int]) -> tuple[SideTables, int] | None:
    """Return the arrays with these classes counted, and how many codes there are; None if too many.

    The code of a key modulo the codes of the first classes alone is its code with these alone.
    """
    radix, codes = np.zeros_like(tables.base), 1
    for c in counted:
        radix[c] = codes
        codes *= int(tables.base[c])
        if codes >= LARGEST_CODE:
            return None
    return tables._replace(radix=radix), codes


def _most(side: HeadSide, classes: Classes, sizes: Sequence[int]) -> IntArray:
    """Return, for each number of operations run, all of `sizes` that is ready then."""
    most = np.zeros(len(side.prefix), np.int64)
    for (_, items), size in zip(classes, sizes, strict=True):
        for item in items:
            most[item.ready + 1 :] += size
    return most


def _run(required: Sequence[int], grid: int) -> IntArray:
    """Return how many operations can run, for each number of levels of `grid` bytes that left."""
    reach = np.maximum.accumulate(_array(required))
    amounts = grid * np.arange(-(-int(reach[-1]) // grid) + 1)
    return np.searchsorted(reach[:-1], amounts, side="right").astype(np.int64)


def _ready(classes: Sequence[list[Movable]]) -> IntArray:
    table = np.zeros((len(classes), max(map(len, classes), default=1)), np.int64)
    for row, items in zip(table, classes, strict=True):
        row[: len(items)] = [item.ready for item in items]
    return table


def _array(values: object) -> IntArray:
    return np.array(values, dtype=np.int64)
