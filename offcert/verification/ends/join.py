"""Joining the two sides of a pivot, for `check`: what both move alike, and how long that takes.

A key is an amount, in units, and a code, the number of tensors moved of each size told apart. Both
sides have moved what is absent at the cut, and each up to `spare` tensors that are not; taking
those away from its keys leaves keys at which the sides can be compared.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

import numpy as np

from offcert.core.compiled import IntArray, compiled
from offcert.verification.ends.prospects import Tables
from offcert.verification.ends.search import NEVER, Keyed
from offcert.verification.limits import TooLargeError

# Keys in order of amount and code, each with a time: three arrays of the same length.
Timed = namedtuple("Timed", ["amounts", "codes", "times"])

# Keys that may come from taking away, or adding, one tensor. Arbitrary.
_MOST_KEYS = 1 << 25


def joined(
    sides: Sequence[Tables], found: Sequence[Keyed], spare: int, limit: int
) -> tuple[int, list[IntArray]]:
    """Return the least length at which two ends join, and for each key the other side's end.

    `found` are all labels of front and back, each of which may move `spare` tensors that are not
    absent at the cut. The length is `NEVER` if nothing joins, and so is an end where no schedule
    within `limit` joins.

    Raises
    ------
    TooLargeError
        If so many keys would have to be compared.
    """
    unit, amounts = int(sides[0].unit), len(found[0].bounds) - 1
    at_cut = -(-int(sides[0].need[-1]) // unit), amounts
    ends = [_least_ends(side, keyed) for side, keyed in zip(sides, found, strict=True)]
    one, two = (
        _varied(side, _complete(keyed, end), -1, spare, at_cut)
        for side, keyed, end in zip(sides, found, ends, strict=True)
    )
    least, after, before = _common(one, two, limit)
    others = [
        _looked_up(keyed, end, _varied(side, other, 1, spare, (0, amounts)), limit)
        for side, keyed, end, other in zip(sides, found, ends, (after, before), strict=True)
    ]
    return least, others


def _varied(tables: Tables, timed: Timed, sign: int, spare: int, within: tuple[int, int]) -> Timed:
    """Return the keys with up to `spare` tensors more or fewer, each with its least time."""
    timed = _least(_within(timed, *within))
    for _ in range(spare):
        if len(timed.codes) * (len(tables.units) + 1) > _MOST_KEYS:
            raise TooLargeError
        timed = _least(_within(_shifted(tables, timed, sign), *within))
    return timed


@compiled
def _least_ends(tables: Tables, found: Keyed) -> IntArray:
    """Return when the side can end with each key; `NEVER` if an operation lacks memory."""
    ends = np.full(len(found.codes), NEVER, dtype=np.int64)
    enough = -(-tables.need.max() // tables.unit)
    if enough < len(found.bounds):
        for key in range(found.bounds[enough], len(found.codes)):
            for row in range(found.first[key], found.first[key + 1]):
                waited = found.rows[row, 1] + tables.clock[-1]
                ends[key] = min(ends[key], max(found.rows[row, 0], waited))
    return ends


@compiled
def _complete(found: Keyed, ends: IntArray) -> Timed:
    """Return the keys that have an end, with it."""
    of = np.zeros(len(ends), dtype=np.int64)
    for amount in range(len(found.bounds) - 1):
        of[found.bounds[amount] : found.bounds[amount + 1]] = amount
    chosen = ends < NEVER
    return Timed(of[chosen], found.codes[chosen], ends[chosen])


@compiled
def _within(timed: Timed, low: int, high: int) -> Timed:
    """Return the keys whose amount is at least `low` and below `high`."""
    chosen = (timed.amounts >= low) & (timed.amounts < high)
    return Timed(timed.amounts[chosen], timed.codes[chosen], timed.times[chosen])


@compiled
def _shifted(tables: Tables, timed: Timed, sign: int) -> Timed:
    """Return the keys as they are and, beside them, with one tensor more (or fewer) of any size."""
    room = len(timed.codes) * (len(tables.units) + 1)
    amounts, codes = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    times = np.empty(room, dtype=np.int64)
    count = 0
    for key in range(len(timed.codes)):
        for c in range(-1, len(tables.units)):
            amount, code = timed.amounts[key], timed.codes[key]
            if c >= 0:
                if tables.radix[c] > 0:
                    moved = code // tables.radix[c] % tables.bases[c] + sign
                    if moved < 0 or moved >= tables.bases[c]:
                        continue
                amount += sign * tables.units[c]
                code += sign * tables.radix[c]
            amounts[count], codes[count], times[count] = amount, code, timed.times[key]
            count += 1
    return Timed(amounts[:count], codes[:count], times[:count])


@compiled
def _least(timed: Timed) -> Timed:
    """Return each key once, in order, with its least time."""
    order = np.argsort(timed.codes, kind="mergesort")
    order = order[np.argsort(timed.amounts[order], kind="mergesort")]
    amounts, codes, times = timed.amounts[order], timed.codes[order], timed.times[order]
    count = 0
    for row in range(len(codes)):
        last = count - 1
        if count > 0 and amounts[last] == amounts[row] and codes[last] == codes[row]:
            times[last] = min(times[last], times[row])
            continue
        amounts[count], codes[count], times[count] = amounts[row], codes[row], times[row]
        count += 1
    return Timed(amounts[:count].copy(), codes[:count].copy(), times[:count].copy())


@compiled
def _common(one: Timed, two: Timed, limit: int) -> tuple[int, Timed, Timed]:
    """Return the least sum at a common key; those within `limit` with the times of two, and of one.

    Both have their keys in order, and each once.
    """
    mine = np.zeros(len(one.codes), dtype=np.int64)
    yours = np.zeros(len(one.codes), dtype=np.int64)
    least, count, other = NEVER, 0, 0
    for key in range(len(one.codes)):
        amount, code = one.amounts[key], one.codes[key]
        while other < len(two.codes) and (
            two.amounts[other] < amount
            or (two.amounts[other] == amount and two.codes[other] < code)
        ):
            other += 1
        if other == len(two.codes):
            break
        if two.amounts[other] != amount or two.codes[other] != code:
            continue
        both = one.times[key] + two.times[other]
        least = min(least, both)
        if both <= limit:
            mine[count], yours[count] = key, other
            count += 1
    mine, yours = mine[:count], yours[:count]
    amounts, codes = one.amounts[mine], one.codes[mine]
    return least, Timed(amounts, codes, two.times[yours]), Timed(amounts, codes, one.times[mine])


@compiled
def _looked_up(found: Keyed, ends: IntArray, timed: Timed, limit: int) -> IntArray:
    """Return the time of each key that has an end such that both are within `limit`."""
    times = np.full(len(ends), NEVER, dtype=np.int64)
    row = 0
    for amount in range(len(found.bounds) - 1):
        for key in range(found.bounds[amount], found.bounds[amount + 1]):
            while row < len(timed.codes) and (
                timed.amounts[row] < amount
                or (timed.amounts[row] == amount and timed.codes[row] < found.codes[key])
            ):
                row += 1
            if row == len(timed.codes):
                return times
            same = timed.amounts[row] == amount and timed.codes[row] == found.codes[key]
            if same and ends[key] < NEVER and ends[key] + timed.times[row] <= limit:
                times[key] = timed.times[row]
    return times
