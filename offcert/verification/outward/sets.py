"""Parts of the schedules, by the tensors that are out at the cut; and how advice divides them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offcert.core.compiled import IntArray
from offcert.verification.outward.tables import Cut

FRONT, BACK = range(2)

# Choices of half of the classes, sets, and sets that are told apart by operations, at most.
# Arbitrary.
_MOST_PARTIAL = 1 << 16
_MOST_SETS = 1 << 16
_MOST_TOLD_APART = 1 << 10


@dataclass(frozen=True)
class Crossing:
    """A transfer under way at the cut."""

    side: int  # On which its tensor is out: ``BACK`` for an offload, ``FRONT`` for a prefetch
    place: int  # Its class
    # Ticks of it that may lie before the cut.
    least: int
    most: int


@dataclass(frozen=True)
class SetLimits:
    """A part of the schedules, by the tensors that are out at the cut."""

    # Least and most tensors of each class that are out at the cut.
    low: tuple[int, ...]
    high: tuple[int, ...]
    # Bytes that are out at the cut.
    least: int
    most: int
    crossing: Crossing | None = None  # The transfer under way at the cut, if there is one
    # Least ticks in which all tensors that are out leave, and return.
    ticks: tuple[int, int] = (0, 0)


def everything(cut: Cut) -> SetLimits:
    """Return all schedules with nothing under way at the cut."""
    return SetLimits((0,) * len(cut.sizes), cut.most, max(0, cut.need), cut.volume)


def with_crossing(cut: Cut, limits: SetLimits, places: range) -> list[SetLimits]:
    """Return schedules with nothing under way, and those with each of some classes on each side.

    What is under way is not out, so one tensor less of its class can be; where none is left for
    that, the limits are empty. On a duplex link there is one part for all that may be under way.
    """
    parts = [limits]
    if not cut.sides[FRONT].shared:
        return parts
    for side in (FRONT, BACK):
        for place in places:
            others = int(cut.sides[side].here[place]) - 1
            high = _with(limits.high, place, min(others, limits.high[place]))
            crossing = Crossing(side, place, 0, int(cut.sides[side].away[place]))
            parts.append(replace(limits, high=high, crossing=crossing))
    return parts


def _with(counts: tuple[int, ...], place: int, count: int) -> tuple[int, ...]:
    return (*counts[:place], count, *counts[place + 1 :])


def finer(coarse: Cut, fine: Cut, limits: SetLimits) -> list[SetLimits]:
    """Return the parts of the same schedules when smaller tensors are counted as well."""
    added = len(fine.sizes) - len(coarse.sizes)
    more = sum(
        size * most for size, most in zip(fine.sizes[:added], fine.most[:added], strict=True)
    )
    crossing = limits.crossing
    if crossing is not None:
        crossing = replace(crossing, place=crossing.place + added)
    all_of_them = SetLimits(
        (0,) * added + limits.low,
        fine.most[:added] + limits.high,
        max(limits.least, fine.need),
        limits.most + more,
        crossing,
        limits.ticks,
    )
    if crossing is not None:
        return [all_of_them]
    return with_crossing(fine, all_of_them, range(added))


def least_ticks(cut: Cut, limits: SetLimits) -> tuple[int, int] | None:
    """Return the least ticks in which tensors that are out leave, and return; None if none fit.

    Tensors may be divided for that; those that take least time a byte make up the bytes.
    """
    certain = sum(size * low for size, low in zip(cut.sizes, limits.low, strict=True))
    possible = sum(size * high for size, high in zip(cut.sizes, limits.high, strict=True))
    crossed = any(low > high for low, high in zip(limits.low, limits.high, strict=True))
    if crossed or limits.least > limits.most:
        return None
    if certain > limits.most or possible < limits.least:
        return None
    found = []
    for side, order, known in zip(cut.sides, cut.cheapest, limits.ticks, strict=True):
        times, missing = side.back.tolist(), limits.least - certain
        total = sum(time * low for time, low in zip(times, limits.low, strict=True))
        for place in order:
            size, others = cut.sizes[place], limits.high[place] - limits.low[place]
            if missing <= size * others:
                # Of the last class only a part may be needed, maybe none.
                total -= -max(0, missing) * times[place] // size
                break
            missing -= size * others
            total += times[place] * others
        found.append(max(known, total))
    return found[FRONT], found[BACK]


def within_ticks(cut: Cut, limits: SetLimits, ticks: int) -> SetLimits:
    """Return the part whose bytes can leave and return within so many ticks."""
    a_byte = cut.a_return_on_both
    most = limits.most if a_byte == 0 else min(limits.most, int(ticks / a_byte))
    return replace(limits, most=most)


def absent_besides(cut: Cut, limits: SetLimits, side: int, ticks: int) -> int:
    """Return the bytes that may be absent on a side though they are not out at the cut.

    They go away and come back within so many ticks, or are under way at the cut.
    """
    a_byte = cut.a_round_trip[side]
    present = [size for size, here in zip(cut.sizes, cut.sides[side].here, strict=True) if here]
    most = sum(present_bytes(cut, side)) if a_byte == 0 else int(max(0, ticks) / a_byte)
    most = 0 if not present or most < min(present) else most
    crossing = limits.crossing
    if crossing is not None and crossing.side == side:
        most += cut.sizes[crossing.place]
    return most


def present_bytes(cut: Cut, side: int) -> list[int]:
    """Return the bytes of each class that may be out on a side."""
    return [size * int(here) for size, here in zip(cut.sizes, cut.sides[side].here, strict=True)]


def tightened(cut: Cut, limits: SetLimits, longest: int) -> SetLimits | None:
    """Leave out counts that no schedule of at most `longest` ticks can have out; None if all are.

    What is out must be enough for every operation, but for what leaves besides.
    """
    known = least_ticks(cut, limits)
    if known is None or sum(known) > longest:
        return None
    limits = within_ticks(cut, replace(limits, ticks=known), longest)
    sizes = np.array(cut.sizes, dtype=np.int64)
    low, high = (np.array(counts, dtype=np.int64) for counts in (limits.low, limits.high))
    # A class has at least what all others at their most lack, at most what their least leaves.
    low = np.maximum(low, high - (int(high @ sizes) - limits.least) // sizes)
    high = np.minimum(high, low + (limits.most - int(low @ sizes)) // sizes)
    for index, side in enumerate(cut.sides):
        besides = absent_besides(cut, limits, index, longest - sum(known))
        for k in np.flatnonzero(side.need > 0):
            can = np.minimum(high, side.absent[:, k])
            over = int(can @ sizes) + besides - int(side.need[k])
            if over < 0:
                return None
            low = np.maximum(low, can - over // sizes)
    if (low > high).any():
        return None
    return replace(limits, low=tuple(low.tolist()), high=tuple(high.tolist()))


def listed(cut: Cut, limits: SetLimits, ticks: int, longest: int) -> IntArray | None:
    """Return all sets within the limits that leave and return in so many ticks; None if too many.

    `longest` are the ticks that a schedule may take; each row of the answer has a count a class.
    """
    low, high = (np.array(counts, dtype=np.int64) for counts in (limits.low, limits.high))
    choices = (high - low + 1).tolist()
    # Every set is one of a half of the classes with one of the other half.
    halves: tuple[list[int], list[int]] = ([], [])
    amounts = [1, 1]
    for place in sorted(range(len(choices)), key=choices.__getitem__, reverse=True):
        smaller = int(amounts[0] > amounts[1])
        halves[smaller].append(place)
        amounts[smaller] *= choices[place]
    if max(amounts) > _MOST_PARTIAL:
        return None
    weights = np.array([cut.sizes, cut.sides[FRONT].back + cut.sides[BACK].back], dtype=np.int64)
    one, two = (_totals(choices, half, weights) for half in halves)
    one += (weights @ low)[:, None]
    order = np.argsort(two[0], kind="stable")
    # For each of the first half, those of the second lie between two places.
    moved = two[0][order]
    first = np.searchsorted(moved, limits.least - one[0], side="left")
    last = np.searchsorted(moved, limits.most - one[0], side="right")
    partners = np.maximum(last - first, 0)
    if partners.sum() > _MOST_SETS:
        return None
    rows = np.repeat(np.arange(len(partners)), partners)
    begins = np.repeat(first - np.cumsum(partners) + partners, partners)
    others = order[begins + np.arange(len(rows))]
    quick = one[1][rows] + two[1][others] <= ticks
    sets = np.tile(low, (int(quick.sum()), 1))
    for half, chosen in zip(halves, (rows[quick], others[quick]), strict=True):
        for place in reversed(half):
            sets[:, place] += chosen % choices[place]
            chosen //= choices[place]
    return _enough(cut, limits, sets, longest)


def _totals(choices: list[int], places: list[int], weights: IntArray) -> IntArray:
    """Return the weights of every choice of counts for some classes, a column for each choice.

    They count beyond the least of each class. The last class changes fastest.
    """
    totals = np.zeros((len(weights), 1), dtype=np.int64)
    for place in places:
        steps = weights[:, place, None] * np.arange(choices[place])
        totals = (totals[:, :, None] + steps[:, None, :]).reshape(len(weights), -1)
    return totals


def _enough(cut: Cut, limits: SetLimits, sets: IntArray, longest: int) -> IntArray:
    """Return the sets that are enough for every operation; see `tightened`."""
    sizes = np.array(cut.sizes, dtype=np.int64)
    if not 0 < len(sets) <= _MOST_TOLD_APART:
        return sets
    for index, side in enumerate(cut.sides):
        spent = sum(sets @ other.back for other in cut.sides)
        besides = absent_besides(cut, limits, index, longest - int(spent.min(initial=longest)))
        for k in np.flatnonzero(side.need > 0):
            can = np.minimum(sets, side.absent[:, k]) @ sizes
            sets = sets[can + besides >= side.need[k]]
    return sets


def around(cut: Cut, limits: SetLimits, sets: IntArray) -> SetLimits:
    """Return the tightest limits that hold all of the sets, of which there is at least one."""
    moved = sets @ np.array(cut.sizes, dtype=np.int64)
    front, back = (int((sets @ side.back).min()) for side in cut.sides)
    return replace(
        limits,
        low=tuple(sets.min(axis=0).tolist()),
        high=tuple(sets.max(axis=0).tolist()),
        least=int(moved.min()),
        most=int(moved.max()),
        ticks=(max(front, limits.ticks[FRONT]), max(back, limits.ticks[BACK])),
    )


# Parts into which a part is divided, at most. Arbitrary.
_MOST_PARTS = 40_000


class FaultError(Exception):
    """The advice does not establish the claim."""


def order_fault(name: str, values: Sequence[int]) -> str | None:
    """Return None if values are positive and decrease, or the fault of the list."""
    if not values or min(values) < 1 or list(values) != sorted(set(values), reverse=True):
        return f"details.{name} must be positive and decrease, not {list(values)}"
    return None


def is_empty(limits: SetLimits) -> bool:
    """Return whether nothing can be within the limits."""
    crossing = limits.crossing
    return limits.least > limits.most or (crossing is not None and crossing.least > crossing.most)


def by_class(
    cut: Cut, limits: SetLimits, size: int, count: int, place: str
) -> tuple[SetLimits, SetLimits]:
    """Return the limits with at least so many tensors of a size, and with fewer."""
    if size not in cut.sizes:
        raise FaultError(f"{place} names tensors of {size} bytes, but there are none")
    c = cut.sizes.index(size)
    low, high = list(limits.low), list(limits.high)
    low[c], high[c] = max(low[c], count), min(high[c], count - 1)
    return replace(limits, low=tuple(low)), replace(limits, high=tuple(high))


def places_of(splits: Sequence[Sequence[Any]], roots: int) -> tuple[list[int], list[list[int]]]:
    """Return the places of the advice on some parts, and on those they are divided into.

    Raises `FaultError` if advice is missing, or left over, or a division makes no sense.
    """
    children: list[list[int]] = [[] for _ in splits]
    # The advice on a part comes before that on what it is divided into, so it is read backwards.
    begun: list[int] = []
    for index in range(len(splits) - 1, -1, -1):
        count = parts_of(splits[index], f"details.splits[{index}]")
        first = len(begun) - count
        if first < 0:
            raise FaultError(_ends_early(-first))
        children[index] = begun[first:][::-1]
        del begun[first:]
        begun.append(index)
    begun.reverse()
    if len(begun) < roots:
        raise FaultError(_ends_early(roots - len(begun)))
    if len(begun) > roots:
        place = f"details.splits[{begun[roots]}]"
        raise FaultError(f"{place} divides nothing, as all has been divided before it")
    return begun, children


def _ends_early(missing: int) -> str:
    return f"details.splits ends where {missing} parts are still to come"


def parts_of(split: Sequence[Any], place: str) -> int:
    """Return into how many parts a division leads; raise if it makes no sense."""
    if not split:
        return 0
    kind, *values = split
    numbers = {"class": 2, "bytes": 1, "ticks": 1, "window": 0, "detail": 1}
    if kind == "sets":
        well = all(_all_integers(counts) for counts in values)
    else:
        well = isinstance(kind, str) and numbers.get(kind) == len(values) and _all_integers(values)
    if not well:
        raise FaultError(f"{place} is no division: {list(split)!r:.100}")
    if kind == "detail":
        if not 1 <= values[0] <= _MOST_PARTS:
            raise FaultError(f"{place} must have 1 to {_MOST_PARTS} parts, not {values[0]}")
        return int(values[0])
    return {"window": 1, "sets": len(values)}.get(kind, 2)


def _all_integers(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(
        isinstance(value, int) and not isinstance(value, bool) for value in values
    )
