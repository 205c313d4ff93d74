"""Verification of bounds that go through the exact sums of what is absent during an operation.

For every sum that whole tensors make up at the pivot it is asked how much of it, at least, has to
move between an operation before and the pivot, or between the pivot and an operation after it: the
cheapest way to make the sum, where tensors that are written, or needed, in between cost their
bytes, and others nothing. One array a side and operation, and each tensor is taken or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.verify.common.absence import Absence, absences, large_tensors, needs
from offcert.verify.common.fluid_times import rests, starts

# Entries of arrays that are computed, and sums that are looked at.
_MOST_WORK = 1 << 30
_MOST_SUMS = 1000
_IMPOSSIBLE = 2**60


def sums_fault(problem: Problem, pivot: int, smallest: int, value: int) -> str | None:
    """Return None if no schedule is shorter than `value`, or why that is not shown.

    Parameters
    ----------
    problem : Problem
        Atomic transfers, any link; schedules exist.
    pivot : int
        An operation.
    smallest : int
        Bytes of a tensor that counts as a whole.
    value : int
        Ticks.
    """
    over = [each for each in absences(problem.trace) if each.before < pivot < each.after]
    whole = [each for each in over if each.size >= smallest]
    amounts = large_tensors(problem, smallest)
    if amounts is None or not whole:
        return "there are no tensors, or too many, whose sums could be told apart"
    unit = math.gcd(*(each.size for each in whole))
    sand = sum(each.size for each in over) - sum(each.size for each in whole)
    least = -(-max(0, needs(problem)[pivot] - sand) // unit)
    if (sum(each.size for each in whole) // unit + 1) * len(whole) ** 2 > _MOST_WORK:
        return "there are too many sums"
    sides = _Sides(problem, pivot, amounts, whole, unit)
    possible = sides.possible[least:].nonzero()[0] + least
    for looked_at, amount in enumerate(possible.tolist()):
        start, rest = sides.fractional(amount)
        if math.ceil(start + rest) >= value:
            # With more bytes absent neither is less.
            return None
        if looked_at >= _MOST_SUMS:
            return f"more than {_MOST_SUMS} sums would have to be looked at"
        longest = math.ceil(sides.start(amount, start) + sides.rest(amount, rest))
        if longest < value:
            return f"with {amount * unit} bytes absent it shows {longest} only, not {value}"
    return None


class _Sides:
    """What is known about the time before the pivot starts, and from its start on."""

    def __init__(
        self,
        problem: Problem,
        pivot: int,
        amounts: Sequence[int],
        whole: Sequence[Absence],
        unit: int,
    ) -> None:
        self._problem, self._pivot, self._amounts, self._unit = problem, pivot, amounts, unit
        self._out = problem.platform.rate(Kind.OFFLOAD)
        self._back = problem.platform.rate(Kind.PREFETCH)
        durations = problem.trace.durations
        first = starts(problem, amounts, self._out)
        last = rests(problem, amounts, self._back)
        self.possible: NDArray[np.bool_] = (
            _cheapest(whole, unit, [False] * len(whole)) < _IMPOSSIBLE
        )
        # Ticks of what comes before, or after, and the units that move meanwhile, by sum.
        self._before = [
            (
                Fraction(first[o], self._out.numerator) + durations[o],
                _cheapest(whole, unit, [each.writer >= o for each in whole]),
            )
            for o in {each.writer for each in whole}
            if o >= 0
        ]
        self._after = [
            (
                Fraction(last[o], self._back.numerator) + durations[pivot],
                _cheapest(whole, unit, [each.after <= o for each in whole]),
            )
            for o in {each.after for each in whole}
        ]

    def fractional(self, amount: int) -> tuple[Fraction, Fraction]:
        """Return when the pivot starts at the earliest with so many units absent, and the rest."""
        amounts = list(self._amounts)
        amounts[self._pivot] = max(amounts[self._pivot], amount * self._unit)
        start = starts(self._problem, amounts, self._out)[self._pivot]
        rest = rests(self._problem, amounts, self._back)[self._pivot]
        return Fraction(start, self._out.numerator), Fraction(rest, self._back.numerator)

    def start(self, amount: int, least: Fraction) -> Fraction:
        """Return when the pivot starts at the earliest with exactly so many units absent."""
        moved = [
            ticks + int(table[amount]) * self._unit / self._out for ticks, table in self._before
        ]
        return max([least, *moved])

    def rest(self, amount: int, least: Fraction) -> Fraction:
        """Return the least time from the pivot's start on."""
        moved = [
            ticks + int(table[amount]) * self._unit / self._back for ticks, table in self._after
        ]
        return max([least, *moved])


def _cheapest(whole: Sequence[Absence], unit: int, costs: Sequence[bool]) -> NDArray[np.int64]:
    """Return, for each sum in units, the least units in it of those that cost anything."""
    total = sum(each.size for each in whole) // unit
    table = np.full(total + 1, _IMPOSSIBLE, dtype=np.int64)
    table[0] = 0
    for each, cost in zip(whole, costs, strict=True):
        units = each.size // unit
        taken = table[: total + 1 - units] + (units if cost else 0)
        table[units:] = np.minimum(table[units:], taken)
    return table
