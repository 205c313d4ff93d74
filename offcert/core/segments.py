"""Bytes that go off the device and return evenly, in exact numbers: for the checker of pieces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from typing import NamedTuple

from offcert.core.presence import after, during, sums_at
from offcert.core.trace import Gap

Rational = int | Fraction

# Bits of a common denominator with which integers are still faster than rationals.
_LONGEST = 1 << 10


class Grid:
    """Rationals as multiples of a part that makes all of them whole; as they are if it is too fine.

    Either is exact.

    Parameters
    ----------
    values : iterable of Fraction
        What is to be whole.
    """

    def __init__(self, values: Iterable[Fraction]) -> None:
        self._parts: int | None = 1
        for denominator in {value.denominator for value in values}:
            self._parts = math.lcm(self._parts, denominator)
            if self._parts.bit_length() > _LONGEST:
                self._parts = None
                break

    def number(self, value: Fraction) -> Rational:
        """Return a value as a number of parts."""
        if self._parts is None:
            return value
        return value.numerator * (self._parts // value.denominator)

    def value(self, number: Rational) -> Fraction:
        """Return the value of a number of parts."""
        return Fraction(number) if self._parts is None else Fraction(number) / self._parts


class Segment(NamedTuple):
    """Bytes that go off the device evenly in the course of some time, or return if negative.

    Attributes
    ----------
    gap : Gap
        The gap in which they are absent.
    start, end : Fraction
        Ticks.
    amount : Fraction
        Bytes.
    """

    gap: Gap
    start: Fraction
    end: Fraction
    amount: Fraction


def absent_at(
    segments: Sequence[Segment], places: Sequence[tuple[int, Rational]], clock: Grid
) -> list[Rational]:
    """Return how many bytes are off the device at each of some places.

    Parameters
    ----------
    segments : sequence of Segment
        Whose times are whole on the clock, if all are.
    places : sequence of (station, time)
        Times as the clock has them.
    """
    sizes = Grid(segment.amount for segment in segments)
    ended = [
        (segment.gap, clock.number(segment.end), sizes.number(segment.amount))
        for segment in segments
    ]
    sums: list[Rational] = [sizes.value(s) for s in sums_at(ended, places, 0)]  # type: ignore[type-var]
    # Few are under way at any time: one in each direction, if the link is used as it can be.
    order = sorted(range(len(segments)), key=lambda index: clock.number(segments[index].start))
    begun = 0
    under_way: list[tuple[Rational, int]] = []
    for index in sorted(range(len(places)), key=lambda index: places[index][1]):
        station, time = places[index]
        while begun < len(order) and clock.number(segments[order[begun]].start) < time:
            heappush(under_way, (ended[order[begun]][1], order[begun]))
            begun += 1
        while under_way and under_way[0][0] <= time:
            heappop(under_way)
        for _, number in under_way:
            gap, start, end, amount = segments[number]
            if after(gap.before) <= station < during(gap.after):
                sums[index] += amount * (clock.value(time) - start) / (end - start)
    return sums
