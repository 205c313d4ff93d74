"""Verification of bounds by the exact sums of tensors that are absent during an operation.

Take a sum that whole tensors can make up at the pivot. How much of it has to move, at least,
between an operation before the pivot and the pivot, or between the pivot and an operation after it?
That is the cheapest way to make the sum, if tensors that are written, or needed, in between cost
their bytes, and others nothing. It is worked out for every sum, with one array for each operation
of either side.

What is absent in the first tick of the pivot and in its last need not be the same: one tensor may
leave and another return in between. That case is looked at on its own. Take all tensors that are
absent in at least one of the two ticks. Without the one that leaves, or without the one that
returns, at least what has to be is still absent; so these two weigh no more than the excess. All of
the tensors have left before the last tick begins, and return after the first one has ended. With a
simplex link the time between two operations holds both, one after the other; with a duplex link
they share the pivot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from offcert.core.platform import Kind, Link
from offcert.proofs.kinds.computed import ExactSums
from offcert.questions.schedule.problem import Problem
from offcert.verification.absence import Absence, absences, large_tensors, least_memory, needs
from offcert.verification.fractional import NO_SCHEDULE, rests, starts
from offcert.verification.limits import Allowance

# Entries of arrays that are computed, sums that are looked at (arbitrary), and the time of a sum
# that cannot be (by definition).
_MOST_WORK = 1 << 30
_MOST_SUMS = 1000
_IMPOSSIBLE = 2**60


def sums_fault(problem: Problem, pivot: int, smallest: int, value: int) -> str | None:
    """Return None if no schedule is shorter than `value`, or why that is not shown.

    Transfers are atomic, and schedules exist. Tensors of at least `smallest` bytes count as wholes.
    """
    over = [each for each in absences(problem.trace) if each.before < pivot < each.after]
    whole = [each for each in over if each.size >= smallest]
    amounts = large_tensors(problem, smallest)
    if amounts is None or not whole:
        return f"details.smallest {smallest} leaves no tensors, or too many, to be told apart"
    unit = math.gcd(*(each.size for each in whole))
    sand = sum(each.size for each in over) - sum(each.size for each in whole)
    least = -(-max(0, needs(problem)[pivot] - sand) // unit)
    if (sum(each.size for each in whole) // unit + 1) * len(whole) ** 2 > _MOST_WORK:
        return f"details.smallest {smallest} leaves too many sums to be told apart"
    sides = _Sides(problem, pivot, amounts, whole, unit)
    possible = sides.possible[least:].nonzero()[0] + least
    fault = _same_fault(sides, possible.tolist(), value)
    if fault is not None or problem.trace.durations[pivot] <= 1:
        return fault
    more = _with_two(sorted(each.size // unit for each in whole), possible, least)
    return _swapped_fault(sides, possible.tolist(), more, value)


def _same_fault(sides: _Sides, possible: Sequence[int], value: int) -> str | None:
    """Return None if it is shown where the pivot's first and last tick lack the same tensors."""
    for looked_at, amount in enumerate(possible):
        start, rest = sides.fractional(amount)
        if math.ceil(start + rest) >= value:
            # With more bytes absent neither is less.
            return None
        if looked_at >= _MOST_SUMS:
            return f"at details.pivot, more than {_MOST_SUMS} sums would have to be looked at"
        longest = math.ceil(sides.start(amount, start) + sides.rest(amount, rest))
        if longest < value:
            absent = amount * sides.unit
            shown = f"it shows {longest} only, not {value}"
            return f"at details.pivot, with {absent} bytes absent, {shown}"
    return None


def _swapped_fault(
    sides: _Sides, possible: Sequence[int], more: Iterable[int], value: int
) -> str | None:
    """Return None if it is shown where tensors change places during the pivot.

    Either the least start and the least rest, of different sums, are enough; or all that is absent
    at one time or the other takes that long to leave and return, or to return after that start, or
    to leave before that rest.
    """
    start, rest = _apart(sides, possible)
    if math.ceil(start + rest) >= value:
        return None
    for looked_at, amount in enumerate(more):
        if math.ceil(sum(sides.fractional(amount)) - 2 * sides.duration) >= value:
            return None
        if looked_at >= _MOST_SUMS:
            return f"at details.pivot, more than {_MOST_SUMS} sums would have to be looked at"
        longest = math.ceil(sides.swapped(amount, start, rest))
        if longest < value:
            absent = amount * sides.unit
            shown = f"it shows {longest} only, not {value}"
            return f"at details.pivot, with {absent} bytes absent at its start or end, {shown}"
    return None


def _with_two(sizes: Sequence[int], possible: NDArray[np.int64], least: int) -> Iterator[int]:
    """Yield the sums in which two tensors weigh no more than the excess over the least."""
    counted = -1
    for amount in possible.tolist():
        small = sum(1 for size in sizes if size <= amount - least)
        if small != counted:
            counted = small
            # How many small ones the sum can have, up to two.
            most = np.full(sum(sizes) + 1, -1)
            most[0] = 0
            for index, size in enumerate(sizes):
                begun = most[: len(most) - size]
                taken = np.where(begun < 0, -1, begun + (1 if index < small else 0))
                most[size:] = np.maximum(most[size:], taken)
        if most[amount] >= 2:
            yield amount


def _apart(sides: _Sides, possible: Sequence[int]) -> tuple[Fraction, Fraction]:
    """Return the least start and the least rest of any sums, or less."""
    starts_: list[Fraction] = []
    rests_: list[Fraction] = []
    for looked_at, amount in enumerate(possible):
        # Of this sum and all larger ones neither is less.
        start, rest = sides.fractional(amount)
        done = bool(starts_) and start >= min(starts_) and rest >= min(rests_)
        if not done and looked_at < _MOST_SUMS:
            start, rest = sides.start(amount, start), sides.rest(amount, rest)
        starts_.append(start)
        rests_.append(rest)
        if done or looked_at >= _MOST_SUMS:
            break
    return min(starts_, default=Fraction(0)), min(rests_, default=Fraction(0))


class _Sides:
    """Bounds on the time before the pivot starts, and from its start on."""

    def __init__(
        self,
        problem: Problem,
        pivot: int,
        amounts: Sequence[int],
        whole: Sequence[Absence],
        unit: int,
    ) -> None:
        self._problem, self._pivot, self._amounts, self.unit = problem, pivot, amounts, unit
        self.duration = problem.trace.durations[pivot]
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
        amounts[self._pivot] = max(amounts[self._pivot], amount * self.unit)
        start = starts(self._problem, amounts, self._out)[self._pivot]
        rest = rests(self._problem, amounts, self._back)[self._pivot]
        return Fraction(start, self._out.numerator), Fraction(rest, self._back.numerator)

    def start(self, amount: int, least: Fraction) -> Fraction:
        """Return when the pivot starts at the earliest with exactly so many units absent."""
        moved = [
            ticks + int(table[amount]) * self.unit / self._out for ticks, table in self._before
        ]
        return max([least, *moved])

    def rest(self, amount: int, least: Fraction) -> Fraction:
        """Return the least time from the pivot's start on."""
        moved = [
            ticks + int(table[amount]) * self.unit / self._back for ticks, table in self._after
        ]
        return max([least, *moved])

    def swapped(self, amount: int, start: Fraction, rest: Fraction) -> Fraction:
        """Return the least time if so many units leave before the pivot's last tick begins.

        They return after its first tick has ended; each side is counted without the pivot. `start`
        and `rest` hold in any case.
        """
        leaving = [Fraction(amount * self.unit) / self._out]
        leaving += [
            ticks + int(table[amount]) * self.unit / self._out for ticks, table in self._before
        ]
        returning = [
            ticks + int(table[amount]) * self.unit / self._back - self.duration
            for ticks, table in self._after
        ]
        shared = 0 if self._problem.platform.link is Link.SIMPLEX else self.duration
        return max(
            max(leaving) + max(returning) - shared,
            start + max(returning),
            max(leaving) - self.duration + rest,
        )


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


def exact_sums(problem: Problem, value: int, proof: ExactSums, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    if proof.pivot >= len(problem.trace):
        return f"details.pivot must be an operation, not {proof.pivot}"
    if least_memory(problem)[0] > problem.platform.memory:
        return NO_SCHEDULE
    return sums_fault(problem, proof.pivot, proof.smallest, value)
