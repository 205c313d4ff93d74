"""Bytes that go off the device and return evenly, in exact numbers: for the checker of pieces."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple, TypeVar

from offcert.core.trace import Gap, Trace

Number = TypeVar("Number", int, Fraction)


def during(operation: int) -> int:
    """Return the station of an operation."""
    return 2 * operation + 1


def after(operation: int) -> int:
    """Return the station between an operation (-1: the start) and the next one."""
    return 2 * operation + 2


def held_at_stations(trace: Trace) -> list[int]:
    """Return the bytes that are on the device at each station if nothing leaves it."""
    change = [0] * (after(len(trace.operations)) + 1)
    for tensor in trace.tensors:
        change[max(during(tensor.uses[0]), 0)] += tensor.size
        change[during(tensor.uses[-1]) + 1] -= tensor.size
    held = list(accumulate(change))
    for index, operation in enumerate(trace.operations):
        held[during(index)] += operation.workspace
    return held


def sums_at(
    changes: Iterable[tuple[Gap, Number, Number]],
    places: Sequence[tuple[int, Number]],
    zero: Number,
) -> list[Number]:
    """Return the sum of all changes of memory at each of some places.

    A change is a gap, a moment and an amount, and counts at the stations at which the gap's tensor
    may be absent, from the moment on. Places are stations with moments, in any order; zero is
    nothing, as a number of the same kind as the amounts.
    """
    # From station to station, changes enter a Fenwick tree over the places' moments and leave it.
    moments = sorted({moment for _, moment in places})
    stations = 1 + max((station for station, _ in places), default=0)
    steps: list[list[tuple[int, Number]]] = [[] for _ in range(stations)]
    for gap, moment, amount in changes:
        rank = bisect_left(moments, moment)
        first, end = after(gap.before), during(gap.after)
        if rank < len(moments):
            if first < stations:
                steps[first].append((rank, amount))
            if end < stations:
                steps[end].append((rank, -amount))
    sums = [zero] * len(places)
    tree = [zero] * (len(moments) + 1)
    station = -1
    for place in sorted(range(len(places)), key=lambda place: places[place][0]):
        while station < places[place][0]:
            station += 1
            for rank, amount in steps[station]:
                node = rank + 1
                while node < len(tree):
                    tree[node] += amount
                    node += node & -node
        node = bisect_left(moments, places[place][1]) + 1
        total = zero
        while node:
            total += tree[node]
            node &= node - 1
        sums[place] = total
    return sums


Rational = int | Fraction

# Bits of a common denominator up to which integers are faster than rationals. Assumed.
LONGEST = 1 << 10


class CommonDenominator:
    """Rationals as whole multiples of a common part, or unchanged where that would be too fine."""

    def __init__(self, values: Iterable[Fraction]) -> None:
        self._parts: int | None = 1
        for denominator in {value.denominator for value in values}:
            self._parts = math.lcm(self._parts, denominator)
            if self._parts.bit_length() > LONGEST:
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


class ByteFlow(NamedTuple):
    """Bytes that go off the device evenly in the course of some time, or return if negative."""

    gap: Gap  # The gap in which they are absent.
    # Ticks.
    start: Fraction
    end: Fraction
    amount: Fraction  # Bytes.


def absent_at(
    flows: Sequence[ByteFlow], places: Sequence[tuple[int, Rational]], clock: CommonDenominator
) -> list[Rational]:
    """Return how many bytes are off the device at each of some places.

    Places are stations with times as the clock has them; times of flows are whole on it, if all
    are.
    """
    sizes = CommonDenominator(flow.amount for flow in flows)
    ended = [(flow.gap, clock.number(flow.end), sizes.number(flow.amount)) for flow in flows]
    sums: list[Rational] = [sizes.value(s) for s in sums_at(ended, places, 0)]  # type: ignore[type-var]
    # Few are under way at any time: one in each direction, if the link is used as it can be.
    order = sorted(range(len(flows)), key=lambda index: clock.number(flows[index].start))
    begun = 0
    under_way: list[tuple[Rational, int]] = []
    for index in sorted(range(len(places)), key=lambda index: places[index][1]):
        station, time = places[index]
        while begun < len(order) and clock.number(flows[order[begun]].start) < time:
            heappush(under_way, (ended[order[begun]][1], order[begun]))
            begun += 1
        while under_way and under_way[0][0] <= time:
            heappop(under_way)
        for _, number in under_way:
            gap, start, end, amount = flows[number]
            if after(gap.before) <= station < during(gap.after):
                sums[index] += amount * (clock.value(time) - start) / (end - start)
    return sums
