"""Divisions of a region: the parts, which division promises most, and which region comes next.

Mostly the region whose schedules may be shortest comes next, and now and then a ripe one. It is
ripe when it is a single set and a bound on its length is known: to follow it to the ends of both
sides may give a schedule as short as that. If the shortest region always came next, all regions
would be examined before any is followed. A better schedule, found soon, makes all regions after it
quicker to refute.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import numpy as np

from offcert.formulations.labels.outward.evaluation import USUAL_ROOM, Evaluation, Evaluator
from offcert.formulations.labels.outward.model import CutProblem
from offcert.formulations.labels.outward.rebuild import Replay
from offcert.formulations.labels.outward.sums import (
    Counts,
    Region,
    Sets,
    hull,
    sets_of,
    squeeze,
    with_most_ticks,
)


@dataclass(frozen=True)
class Remains:
    """The part of a region that may hold schedules within the limit."""

    region: Region  # Limits of the part.
    evaluation: Evaluation  # Of it.
    sets: Sets | None  # All that are left; None if they are too many.
    ticks: tuple[int, int]  # In which what is out leaves, and returns, at least.


def few_sets(pivot: CutProblem, region: Region, limit: int, most: int) -> list[Counts] | None:
    """Return all sets of a region that bytes and link time admit; None if one, or too many."""
    if region.is_one():
        return None
    smaller = squeeze(pivot, with_most_ticks(pivot, region, limit), limit)
    if smaller is None:
        return []
    sets = sets_of(pivot, smaller, limit, limit)
    if sets is None or len(sets) > most:
        return None
    return sorted(tuple(row) for row in sets.counts.tolist())


def examine(
    evaluator: Evaluator,
    region: Region,
    limit: int,
    window: int,
    ticks: tuple[int, int] = (0, 0),
    room: int = USUAL_ROOM,
) -> Remains | None:
    """Narrow a region to what may hold schedules within a limit; None if nothing is left.

    `window` are the bytes that are followed outward, `ticks` those in which what is out is known to
    leave, and to return, at least, and `room` the labels that a search of one side may store.
    """
    pivot = evaluator.pivot
    while True:
        # A single set is searched at once.
        one = region.is_one()
        smaller = region if one else squeeze(pivot, with_most_ticks(pivot, region, limit), limit)
        if smaller is None:
            return None
        evaluation = evaluator.evaluate(smaller, limit, window, ticks, room)
        if evaluation is None:
            return None
        left = limit - evaluation.idle
        smaller = with_most_ticks(pivot, smaller, left)
        if smaller.most < smaller.least:
            return None
        sets = sets_of(pivot, smaller, left, limit)
        remains = Remains(smaller, evaluation, sets, ticks)
        if sets is not None:
            if len(sets) == 0:
                return None
            away, back = np.maximum(sets.ticks.min(axis=1), ticks).tolist()
            remains = Remains(hull(pivot, smaller, sets), evaluation, sets, (away, back))
        if remains.region == region and remains.ticks == ticks:
            return remains
        region, ticks = remains.region, remains.ticks


# Labels for a look at one side of a part. Arbitrary.
_ROOM = 1 << 12
# Labels after which the best division so far is taken. Arbitrary.
_PATIENCE = 40_000


class SplitKind(StrEnum):
    """The property by which the parts differ."""

    CLASS = "class"  # at least so many of a class are out, or fewer
    BYTES = "bytes"  # at least so many bytes are out, or fewer
    TICKS = "ticks"  # what straddles the cut begins at least so many ticks before it, or fewer
    SETS = "sets"  # each set that is left
    WINDOW = "window"  # nothing: the one part is followed further outward
    DETAIL = "detail"  # which small tensor straddles the cut; small ones are counted from here on


@dataclass(frozen=True)
class RegionSplit:
    """A division of a region."""

    kind: SplitKind  # The property by which the parts differ.
    value: int = 0  # The least number of tensors, bytes or ticks of the first part.
    size_class: int = -1  # Number of the class whose tensors are counted, if it is by a class.
    sets: tuple[Counts, ...] = ()  # Each of them, if it is sets.

    def parts(self, region: Region, sizes: Sequence[int]) -> tuple[Region, ...]:
        """Return the parts of a region; of a window that is the region itself."""
        match self.kind:
            case SplitKind.CLASS:
                more = region.with_low(self.size_class, self.value)
                return more, region.with_high(self.size_class, self.value - 1)
            case SplitKind.BYTES:
                more = region.with_bytes(self.value, region.most)
                return more, region.with_bytes(region.least, self.value - 1)
            case SplitKind.TICKS:
                straddle = region.straddle
                assert straddle is not None
                more = replace(region, straddle=replace(straddle, least=self.value))
                return more, replace(region, straddle=replace(straddle, most=self.value - 1))
            case SplitKind.SETS:
                return tuple(one_set(region, counts, sizes) for counts in self.sets)
            case _:
                return (region,)


def one_set(region: Region, counts: Counts, sizes: Sequence[int]) -> Region:
    """Return the part of a region in which exactly this set is out."""
    moved = sum(size * count for size, count in zip(sizes, counts, strict=True))
    return replace(region, low=counts, high=counts, least=moved, most=moved)


@dataclass(frozen=True)
class RegionDivision:
    """A split whose parts have been looked at."""

    split: RegionSplit  # The split.
    parts: tuple[Region, ...]  # Its parts.
    lengths: tuple[int, ...]  # Least ticks of each part.
    gain: int = 1  # The larger, the more the parts take; 1 if no more than was known of the whole.


def best_division(
    evaluator: Evaluator, remains: Remains, splits: Iterable[RegionSplit], limit: int, window: int
) -> RegionDivision | None:
    """Return the division, of some splits, whose parts gain most; None if there is none.

    Schedules longer than `limit` are of no interest; `window` bytes are followed outward.
    """
    region, known = remains.region, remains.evaluation.length
    begun, best = evaluator.labels, None
    for split in splits:
        if evaluator.labels > begun + _PATIENCE and best is not None:
            break
        parts = split.parts(region, evaluator.pivot.sizes)
        found = (evaluator.evaluate(part, limit, window, remains.ticks, _ROOM) for part in parts)
        lengths = tuple(limit + 1 if one is None else max(known, one.length) for one in found)
        division = RegionDivision(split, parts, lengths, math.prod(n - known + 1 for n in lengths))
        if best is None or division.gain > best.gain:
            best = division
    return best


def of_ways(remains: Remains, ways: Sequence[Replay]) -> Iterator[RegionSplit]:
    """Yield divisions that make one of the ways impossible in one of the parts."""
    region = remains.region
    needed = max(way.bytes_out for way in ways)
    if needed > region.least:
        for value in sorted({needed, (region.least + needed) // 2 + 1}):
            yield RegionSplit(SplitKind.BYTES, min(value, region.most))
    for c, (low, high) in enumerate(zip(region.low, region.high, strict=True)):
        used = max(way.used[c] for way in ways)
        if low < used <= high:
            yield RegionSplit(SplitKind.CLASS, used, c)


def of_straddle(remains: Remains) -> Iterator[RegionSplit]:
    """Yield the division of a straddling transfer at the tick where that costs least."""
    straddle, before = remains.region.straddle, remains.evaluation.before
    if straddle is not None and straddle.least < straddle.most:
        yield RegionSplit(SplitKind.TICKS, max(before, straddle.least + 1))


def of_set(remains: Remains, counts: Counts | None) -> Iterator[RegionSplit]:
    """Yield divisions by one class each: at the count of a given set, or in the middle."""
    region = remains.region
    for c, (low, high) in enumerate(zip(region.low, region.high, strict=True)):
        if low == high:
            continue
        values = {(low + high + 1) // 2}
        if counts is not None:
            values = {counts[c], counts[c] + 1}
        for value in sorted(values):
            if low < value <= high:
                yield RegionSplit(SplitKind.CLASS, value, c)


class HasLength(Protocol):
    """An item of an agenda."""

    length: int


Item = TypeVar("Item", bound=HasLength)

# Regions between two turns of the ripe ones: a single set that gives a better schedule early makes
# the rest quicker to refute. Arbitrary.
_TURN = 8


@dataclass(eq=False)
class _Entry(Generic[Item]):
    """An item on the agenda, until it is taken from either heap."""

    item: Item
    taken: bool = False


class Agenda(Generic[Item]):
    """Items with a length, the shortest first."""

    def __init__(self) -> None:
        self._all: list[tuple[int, int, _Entry[Item]]] = []
        self._ripe: list[tuple[int, int, _Entry[Item]]] = []
        self._pushed = 0
        self._times = 0

    def push(self, item: Item, *, ripe: bool = False) -> None:
        """Put an item on the agenda; its length must not change until it is taken."""
        self._pushed += 1
        entry = item.length, self._pushed, _Entry(item)
        heapq.heappush(self._all, entry)
        if ripe:
            heapq.heappush(self._ripe, entry)

    def least(self, otherwise: int) -> int:
        """Return the length of the shortest item, or something else if there is none."""
        _drop_taken(self._all)
        return self._all[0][0] if self._all else otherwise

    def take(self, most: int) -> list[Item]:
        """Take the items whose turn it is: so many, or all that there are."""
        items: list[Item] = []
        while len(items) < most:
            self._times += 1
            _drop_taken(self._ripe)
            _drop_taken(self._all)
            heap = self._ripe if self._ripe and self._times % _TURN == 0 else self._all
            if not heap:
                break
            entry = heapq.heappop(heap)[2]
            entry.taken = True
            items.append(entry.item)
        return items


def _drop_taken(heap: list[tuple[int, int, _Entry[Item]]]) -> None:
    while heap and heap[0][2].taken:
        heapq.heappop(heap)
