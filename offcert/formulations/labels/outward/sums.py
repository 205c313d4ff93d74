"""Sets of tensors that are left in a region, and the time that they take on the link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray
from offcert.formulations.labels.outward.model import CutProblem

Counts = tuple[int, ...]

FRONT, BACK = range(2)


@dataclass(frozen=True)
class Straddle:
    """A tensor that is under way when the pivot starts, and so is out on one side only."""

    side: int  # ``BACK`` if it is being offloaded, ``FRONT`` if it is being prefetched.
    size_class: int  # Its class.
    # Ticks of its transfer before the pivot starts.
    least: int
    most: int

    def ticks(self, pivot: CutProblem) -> int:
        """Return the ticks of the transfer."""
        return int(pivot.sides[self.side].away[self.size_class])


@dataclass(frozen=True)
class Region:
    """All schedules whose tensors at the cut are within limits."""

    # Least and most of each class that are out.
    low: Counts
    high: Counts
    # Bytes that are out.
    least: int
    most: int
    straddle: Straddle | None = None  # The transfer under way at the cut; None if there is none.

    def is_one(self) -> bool:
        """Whether only one set of classes is left."""
        return self.low == self.high

    def with_low(self, size_class: int, count: int) -> Region:
        """Return the part with at least so many of a class."""
        return replace(self, low=_changed(self.low, size_class, count))

    def with_high(self, size_class: int, count: int) -> Region:
        """Return the part with at most so many of a class."""
        return replace(self, high=_changed(self.high, size_class, count))

    def with_bytes(self, least: int, most: int) -> Region:
        """Return the part with so many bytes."""
        return replace(self, least=max(self.least, least), most=min(self.most, most))


def _changed(counts: Counts, place: int, count: int) -> Counts:
    return (*counts[:place], count, *counts[place + 1 :])


def whole(pivot: CutProblem) -> Region:
    """Return all schedules in which nothing is under way at the cut."""
    most = sum(size * count for size, count in zip(pivot.sizes, pivot.most, strict=True))
    return Region((0,) * len(pivot.sizes), pivot.most, max(0, pivot.need), most)


def crossed(pivot: CutProblem, region: Region, size_classes: range) -> list[Region]:
    """Return a region, and those like it in which a tensor of some classes straddles the cut.

    In the region nothing is under way at the cut. What straddles the cut is not out, so one tensor
    less of its class can be; if none is left for that, the region is empty. On a duplex link the
    region itself stands for whatever straddles the cut.
    """
    parts = [region]
    if not pivot.shared:
        return parts
    for side in (FRONT, BACK):
        for c in size_classes:
            others = int(pivot.sides[side].here[c]) - 1
            straddle = Straddle(side, c, 0, int(pivot.sides[side].away[c]))
            part = region.with_high(c, min(others, region.high[c]))
            parts.append(replace(part, straddle=straddle))
    return parts


# Sets that are listed, and choices in one half of the classes, at most. Arbitrary.
MOST_SETS = 1 << 15
MOST_CHOICES = 1 << 14
# Sets that are looked at one by one whether they are enough. Arbitrary.
MOST_TESTED = 1 << 9
# Part of the pivot's need up to which the bytes that a set has to spare count. Arbitrary.
_ENOUGH = 0.05


def least_ticks(pivot: CutProblem, region: Region) -> tuple[int, int] | None:
    """Return the least ticks in which any set of the region leaves, and returns; None: no set.

    It is a bound, as tensors may be divided for it: those that take least time a byte come first.
    """
    sizes = pivot.sizes
    certain = sum(size * count for size, count in zip(sizes, region.low, strict=True))
    possible = sum(size * count for size, count in zip(sizes, region.high, strict=True))
    if possible < region.least or certain > region.most or region.least > region.most:
        return None
    if any(low > high for low, high in zip(region.low, region.high, strict=True)):
        return None
    front, back = (_cover(sizes, side.back, region, certain) for side in pivot.sides)
    return front, back


def _cover(sizes: tuple[int, ...], ticks: IntArray, region: Region, certain: int) -> int:
    times = tuple(ticks.tolist())
    total = sum(time * low for time, low in zip(times, region.low, strict=True))
    missing = region.least - certain
    for c in _by_rate(sizes, times):
        if missing <= 0:
            break
        count = region.high[c] - region.low[c]
        if missing <= sizes[c] * count:
            return total - (-missing * times[c] // sizes[c])
        total += times[c] * count
        missing -= sizes[c] * count
    return total


@lru_cache(maxsize=64)
def _by_rate(sizes: tuple[int, ...], times: tuple[int, ...]) -> tuple[int, ...]:
    """Return the classes, those first that take least time a byte."""
    return tuple(sorted(range(len(sizes)), key=lambda c: Fraction(times[c], sizes[c])))


@dataclass(frozen=True)
class Sets:
    """Sets of tensors, by how many of each class they have."""

    counts: IntArray  # A row a set (shape (S, C)).
    ticks: IntArray  # In which each leaves, and returns (shape (2, S)).

    def __len__(self) -> int:
        return len(self.counts)

    def only(self, kept: np.ndarray) -> Sets:
        """Return the chosen rows."""
        return Sets(self.counts[kept], self.ticks[:, kept])


def with_most_ticks(pivot: CutProblem, region: Region, ticks: int) -> Region:
    """Return the part of a region whose sets may leave and return within so many ticks."""
    a_byte = pivot.a_byte_out
    most = region.most if a_byte == 0 else int(ticks / a_byte)
    return region.with_bytes(region.least, most)


def departing(pivot: CutProblem, side: int, ticks: int) -> int:
    """Return the most bytes that can leave on a side and return within so many ticks."""
    a_byte, (smallest, all_of_them) = pivot.a_byte[side], pivot.movable[side]
    most = all_of_them if a_byte == 0 else int(max(0, ticks) / a_byte)
    return most if most >= smallest else 0


def squeeze(pivot: CutProblem, region: Region, limit: int) -> Region | None:
    """Return the part of a region that may hold schedules within the limit, or None.

    What is out at the cut has to be enough for every operation, together with what leaves later on;
    and that takes time in which nothing of `O` can return.
    """
    known = least_ticks(pivot, region)
    if known is None or sum(known) > limit:
        return None
    low, high = np.array(region.low, np.int64), np.array(region.high, np.int64)
    sizes = np.array(pivot.sizes, np.int64)
    spare = int(high @ sizes) - region.least
    low = np.maximum(low, high - spare // sizes)
    high = np.minimum(high, low + (region.most - int(low @ sizes)) // sizes)
    for index, side in enumerate(pivot.sides):
        extra = _extra(pivot, region, index, limit - sum(known))
        can = np.minimum(high[:, None], side.absent)
        over = sizes @ can + extra - side.need
        over = np.where(side.need > 0, over, np.iinfo(np.int64).max)
        if over.min(initial=0) < 0:
            return None
        low = np.maximum(low, (can - over // sizes[:, None]).max(axis=1, initial=0))
    if (low > high).any():
        return None
    return replace(region, low=tuple(low.tolist()), high=tuple(high.tolist()))


def _extra(pivot: CutProblem, region: Region, side: int, ticks: int) -> int:
    """Return the bytes that may be absent on a side without being out at the cut."""
    extra = departing(pivot, side, ticks)
    if region.straddle is not None and region.straddle.side == side:
        extra += pivot.sizes[region.straddle.size_class]
    return extra


def sets_of(pivot: CutProblem, region: Region, ticks: int, limit: int) -> Sets | None:
    """Return the sets of a region that leave and return within so many ticks; None if too many.

    Classes are divided in two halves; for every choice in one of them, those in the other that make
    the bytes right lie next to each other.
    """
    ranges = [high - low + 1 for low, high in zip(region.low, region.high, strict=True)]
    parts = _parts(ranges)
    if max(math.prod(ranges[c] for c in part) for part in parts) > MOST_CHOICES:
        return None
    sizes = np.array(pivot.sizes, np.int64)
    weights = [sizes, *(side.back for side in pivot.sides)]
    # Of every choice in a half: bytes, ticks to leave, ticks to return.
    one, two = (_choices(part, ranges, weights) for part in parts)
    order = np.argsort(two[0], kind="stable")
    large = two[0][order]
    small = one[0] + int(np.array(region.low) @ sizes)
    first = np.searchsorted(large, region.least - small)
    amount = np.searchsorted(large, region.most - small, side="right") - first
    total = int(amount.sum())
    if total > MOST_SETS:
        return None
    rows = np.repeat(np.arange(small.size), amount)
    places = np.arange(total) - np.repeat(np.cumsum(amount) - amount, amount)
    others = order[first[rows] + places]
    certain = [int(np.array(region.low) @ side.back) for side in pivot.sides]
    taken = np.stack([certain[i] + one[i + 1][rows] + two[i + 1][others] for i in (0, 1)])
    kept = taken.sum(axis=0) <= ticks
    counts = np.tile(np.array(region.low, np.int64), (int(kept.sum()), 1))
    for part, choice in zip(parts, (rows[kept], others[kept]), strict=True):
        for c in part:
            counts[:, c] += choice % ranges[c]
            choice = choice // ranges[c]
    return _sufficient(pivot, region, Sets(counts, taken[:, kept]), limit)


def _parts(ranges: Sequence[int]) -> tuple[list[int], list[int]]:
    """Divide the classes such that about as many choices are left in either half."""
    parts: tuple[list[int], list[int]] = ([], [])
    products = [1, 1]
    for c in reversed(range(len(ranges))):
        half = int(products[1] < products[0])
        parts[half].append(c)
        products[half] *= ranges[c]
    return parts


def _choices(
    part: Sequence[int], ranges: Sequence[int], weights: Sequence[IntArray]
) -> list[IntArray]:
    """Return the weights of all choices in some classes, the first of which changes fastest."""
    totals = []
    for weight in weights:
        total = np.zeros(1, np.int64)
        for c in part:
            total = (np.arange(ranges[c])[:, None] * weight[c] + total[None, :]).ravel()
        totals.append(total)
    return totals


def _sufficient(pivot: CutProblem, region: Region, sets: Sets, limit: int) -> Sets:
    """Return the sets that are enough for every operation; see `squeeze`."""
    sizes = np.array(pivot.sizes, np.int64)
    for index, side in enumerate(pivot.sides):
        if not 0 < len(sets) <= MOST_TESTED:
            break
        extra = _extra(pivot, region, index, limit - int(sets.ticks.sum(axis=0).min()))
        fewest = sizes @ np.minimum(sets.counts.min(axis=0)[:, None], side.absent)
        for operation in np.flatnonzero((side.need > 0) & (fewest + extra < side.need)):
            absent = np.minimum(sets.counts, side.absent[:, operation]) @ sizes
            sets = sets.only(absent + extra >= side.need[operation])
    return sets


def to_spare(pivot: CutProblem, sets: Sets) -> NDArray[np.float64]:
    """Return how much more of each set may be absent than the operations need, on average.

    What goes beyond a few percent of the pivot's need does not count.
    """
    sizes = np.array(pivot.sizes, np.float64)
    counts = sets.counts.astype(np.float64)
    spare = np.zeros(len(sets))
    for side in pivot.sides:
        for operation in np.flatnonzero(side.need > 0):
            absent = np.minimum(counts, side.absent[:, operation].astype(np.float64)) @ sizes
            spare += np.minimum((absent - side.need[operation]) / pivot.need, _ENOUGH)
    return spare


def hull(pivot: CutProblem, region: Region, sets: Sets) -> Region:
    """Return the least region that holds all of the sets."""
    moved = sets.counts @ np.array(pivot.sizes, np.int64)
    return replace(
        region,
        low=tuple(sets.counts.min(axis=0).tolist()),
        high=tuple(sets.counts.max(axis=0).tolist()),
        least=int(moved.min()),
        most=int(moved.max()),
    )
