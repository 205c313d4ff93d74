"""Sets of schedules: which tensors may be out at the cut, and what is under way then."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offcert.formulations.labels.outward.model import CutProblem

Counts = tuple[int, ...]

FRONT, BACK = range(2)


@dataclass(frozen=True)
class Straddle:
    """A tensor that is under way when the pivot starts, to be out on one side only.

    Attributes
    ----------
    side : int
        ``BACK`` if it is being offloaded, ``FRONT`` if it is being prefetched.
    size_class : int
        Its class.
    least, most : int
        Ticks of its transfer before the pivot starts.
    """

    side: int
    size_class: int
    least: int
    most: int

    def ticks(self, pivot: CutProblem) -> int:
        """Return how long the transfer lasts."""
        return int(pivot.sides[self.side].away[self.size_class])


@dataclass(frozen=True)
class Region:
    """All schedules whose tensors at the cut are within limits.

    Attributes
    ----------
    low, high : tuple of int
        Least and most of each class that are out.
    least, most : int
        Bytes that are out.
    straddle : Straddle or None
        What is under way at the cut; nothing if None.
    """

    low: Counts
    high: Counts
    least: int
    most: int
    straddle: Straddle | None = None

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
    """Return a region, and those like it in which a tensor straddles the cut.

    What straddles the cut is not out, so one tensor less of its class can be; if none is left for
    that, the region is empty.

    Parameters
    ----------
    pivot : CutProblem
        What is searched.
    region : Region
        With nothing under way at the cut.
    size_classes : range
        Of the tensors in question.
    """
    parts = [region]
    for side in (FRONT, BACK):
        for c in size_classes:
            others = int(pivot.sides[side].here[c]) - 1
            straddle = Straddle(side, c, 0, int(pivot.sides[side].away[c]))
            part = region.with_high(c, min(others, region.high[c]))
            parts.append(replace(part, straddle=straddle))
    return parts
