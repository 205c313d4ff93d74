"""Sums over what is on the device when, for the checkers: from the definition, in O(n log n).

The step is cut into *stations*: the time before the first operation, then each operation and the
time after it. Which tensors exist and which of them may be absent depends on the station alone;
which of those are absent depends on the time too. In a schedule that is not valid any station may
come at any time, so both are kept apart: what is absent is known by stations and moments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TypeVar

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
    """Return what all changes amount to at each of some places.

    Parameters
    ----------
    changes : iterable of (Gap, moment, amount)
        Each counts at the stations at which the gap's tensor may be absent, from a moment on.
    places : sequence of (station, moment)
        In any order.
    zero : int or Fraction
        Nothing, as a number of the same kind as the amounts.

    Returns
    -------
    list of int or of Fraction
        One sum a place.
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
