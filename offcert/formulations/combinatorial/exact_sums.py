"""The fractional bound, sum by sum: what is absent at the turn, exactly, and when it must return.

What whole tensors make up at the operation that needs most is one of few sums where sizes repeat.
A sum may only be possible with a tensor that is written late or needed soon, and then some bytes
have to move just before or just after that operation; the next sum may do without, but moves more.
Either costs time that the fractional bound, which asks how much is absent but not what, cannot see.

Let ``s`` be the bytes of what is absent when the pivot starts. Those of them that were written by
an operation ``o`` or later are at least the least that, with others, makes up ``s``; they leave
between the end of ``o`` and the pivot's start. Let ``s'`` be what is absent when the pivot ends:
what is needed by a later operation returns between then and the start of that. This gives a head of
``s`` and a tail of ``s'``.

If no tensor leaves while the pivot runs, or none returns then, one of the two sets is within the
other, and the smaller serves for both: no schedule is shorter than the least sum of the head and
the tail of one ``s``. Otherwise a tensor has left and another has returned meanwhile. Head and tail
may then be of different sums. But each of the two tensors is absent at the start or at the end in
addition to what has to be; so it weighs no more than the excess of all that is absent at one time
or the other. That has all left before the pivot's end, and all returns after its start. On a
simplex link one follows the other; on a duplex link both may happen at once while the pivot runs.

Sums are gone through in increasing order until the fractional bound with that sum, which grows with
it, is no less than the least so far. Small tensors, of which there may be many of odd sizes, count
byte by byte, and wherever that is best.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.platform import Kind, Link
from offcert.core.result import Bound
from offcert.core.trace import LARGEST_TOTAL
from offcert.formulations.combinatorial.large_tensors import required_of_large
from offcert.formulations.combinatorial.relaxations import heads_and_tails, subset_sums
from offcert.proofs.kinds.computed import ExactSums
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Problem

METHOD = "exact-sums"

# Sums that are looked at, and the product of units told apart, tensors and operations, at most.
# Arbitrary.
_MOST_SUMS = 200
_MOST_WORK = 1 << 28


@dataclass(frozen=True)
class _Parting:
    """Sums of the tensors that must move between an operation and the pivot, and of the others.

    `rest` are ticks of what is before, or after, the moves; `others` has bit ``total - k`` where
    they make ``k`` units.
    """

    rest: Fraction
    near: int
    others: int


def exact_sums_bound(problem: Problem, smallest: int = 1) -> Bound | None:
    """Return the bound at the operation that needs most, or None if there are too many sums.

    Parameters
    ----------
    problem : Problem
        A feasible one with atomic transfers.
    smallest : int
        Bytes; tensors of less count byte by byte.
    """
    trace = problem.trace
    required = required_of_large(problem, smallest)
    pivot = max(range(len(trace)), key=required.__getitem__)
    over = [gap for gap in range(len(trace.gaps)) if trace.gaps[gap].spans(pivot)]
    large = [gap for gap in over if trace.gap_size(gap) >= smallest]
    if not large or not required[pivot]:
        return None
    unit = math.gcd(*(trace.gap_size(gap) for gap in large))
    units = {gap: trace.gap_size(gap) // unit for gap in large}
    if sum(units.values()) * len(large) ** 2 > _MOST_WORK:
        return None
    sand = sum(trace.gap_size(gap) for gap in over) - sum(units.values()) * unit
    least = max(0, trace.demand[pivot] - problem.platform.memory - sand)
    turn = _Turn(problem, required, pivot, unit, units)
    value = _least_over_sums(turn, units, -(-least // unit))
    return proved(METHOD, value, ExactSums(pivot=pivot, smallest=smallest))


class _Turn:
    """Least ticks before the pivot, and from its start on, by the bytes that are absent."""

    def __init__(
        self, problem: Problem, required: list[int], pivot: int, unit: int, units: dict[int, int]
    ) -> None:
        trace = problem.trace
        self._problem, self._required, self._pivot, self._unit = problem, required, pivot, unit
        self.total = sum(units.values())
        self.duration = trace.durations[pivot]
        self.simplex = problem.platform.link is Link.SIMPLEX
        # While it runs for one tick, nothing leaves after its start and before its end.
        self.may_swap = self.duration > 1 and len(units) > 1
        times = heads_and_tails(problem, required)
        writers = {gap: trace.tensors[trace.gaps[gap].tensor].uses[0] for gap in units}
        closers = {gap: trace.gaps[gap].after for gap in units}
        self._before = [_parting(units, Fraction(0), set(units))] + [
            _parting(
                units,
                times.heads[o] + trace.durations[o],
                {gap for gap in units if writers[gap] >= o},
            )
            for o in sorted(set(writers.values()))
            if o >= 0
        ]
        self._after = [
            _parting(units, times.tails[o], {gap for gap in units if closers[gap] <= o})
            for o in sorted(set(closers.values()))
        ]
        self._out, self._back = (unit / problem.platform.rate(kind) for kind in Kind)

    def fractional(self, amount: int) -> tuple[Fraction, Fraction]:
        """Return head and tail of so many units, byte by byte; both grow with them."""
        amounts = list(self._required)
        amounts[self._pivot] = max(amounts[self._pivot], amount * self._unit)
        times = heads_and_tails(self._problem, amounts)
        return times.heads[self._pivot], times.tails[self._pivot]

    def left(self, amount: int) -> Fraction:
        """Return when so many units can have left, at the earliest."""
        parts = self._before
        return max(part.rest + self._out * _near(part, amount, self.total) for part in parts)

    def returned(self, amount: int) -> Fraction:
        """Return how long before the end so many units begin to return, at the latest."""
        parts = self._after
        return max(part.rest + self._back * _near(part, amount, self.total) for part in parts)

    def swapped(self, amount: int, head: Fraction, tail: Fraction) -> Fraction:
        """Return the least time if so many units leave before the pivot's end, return after it.

        `head` and `tail` hold whatever is absent when the pivot starts, and when it ends.
        """
        left, returned = self.left(amount), self.returned(amount)
        apart = left + returned
        shared = apart if self.simplex else apart - self.duration
        return max(shared, head + returned, left - self.duration + tail)

    def growing(self, amount: int) -> Fraction:
        """Return a bound on what `swapped` says of so many units, and of more."""
        head, tail = self.fractional(amount)
        return head + tail - 2 * self.duration


def _least_over_sums(turn: _Turn, units: dict[int, int], least: int) -> int:
    """Return the least time over all that may be absent when the pivot starts, and when it ends."""
    one = heads = tails = None
    for looked_at, amount in enumerate(_sums(units.values(), least)):
        head, tail = turn.fractional(amount)
        beyond = looked_at == _MOST_SUMS or (one is not None and math.ceil(head + tail) >= one)
        if not beyond:
            head = max(head, turn.left(amount))
            tail = max(tail, turn.duration + turn.returned(amount))
        longest = math.ceil(head + tail)
        one = longest if one is None else min(one, longest)
        heads = head if heads is None else min(heads, head)
        tails = tail if tails is None else min(tails, tail)
        if beyond:
            break
    assert one is not None
    assert heads is not None
    assert tails is not None
    if not turn.may_swap:
        return one
    swapped = _least_swapped(turn, units, least, heads, tails)
    return min(one, max(math.ceil(heads + tails), swapped))


def _least_swapped(
    turn: _Turn, units: dict[int, int], least: int, head: Fraction, tail: Fraction
) -> int:
    """Return the least time if a tensor leaves and another returns while the pivot runs."""
    best: Fraction | None = None
    for looked_at, amount in enumerate(_swappable(units.values(), least)):
        growing = turn.growing(amount)
        if looked_at == _MOST_SUMS or (best is not None and growing >= best):
            return math.ceil(growing if best is None else min(best, growing))
        longest = max(growing, turn.swapped(amount, head, tail))
        best = longest if best is None else min(best, longest)
    return LARGEST_TOTAL if best is None else math.ceil(best)


def _swappable(sizes: Collection[int], least: int) -> Iterator[int]:
    """Yield the sums, increasing, in which two of the tensors weigh no more than the excess."""
    ordered = sorted(sizes)
    known: dict[int, int] = {}
    for amount in _sums(sizes, least):
        small = bisect_right(ordered, amount - least)
        if small not in known:
            known[small] = _with_two(ordered[:small], ordered[small:])
        if known[small] >> amount & 1:
            yield amount


def _with_two(small: Sequence[int], large: Sequence[int]) -> int:
    """Return the sums, as bits, that have two small ones at least."""
    none = subset_sums(large)
    one = two = 0
    for size in small:
        two |= (two | one) << size
        one |= none << size
    return two


def _parting(units: dict[int, int], rest: Fraction, moving: Collection[int]) -> _Parting:
    total = sum(units.values())
    near = subset_sums(size for gap, size in units.items() if gap in moving)
    others = subset_sums(size for gap, size in units.items() if gap not in moving)
    mirrored = int(format(others, f"0{total + 1}b")[::-1], 2)
    return _Parting(rest, near, mirrored)


def _near(part: _Parting, amount: int, total: int) -> int:
    """Return the least units of the near ones that others complete to an amount."""
    possible = part.near & (part.others >> (total - amount))
    return (possible & -possible).bit_length() - 1


def _sums(sizes: Iterable[int], least: int) -> Iterator[int]:
    """Yield the sums of subsets, increasing, from one on."""
    sums = subset_sums(sizes) >> least
    while sums:
        low = sums & -sums
        yield least + low.bit_length() - 1
        sums ^= low
