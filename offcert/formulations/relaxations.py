"""Combinatorial lower bounds: Prop. 3, the fractional optimum, and both with subset-sum rounding.

All of them rest on one number per operation: the bytes that must be absent while it runs. They are
computed in exact integers and re-computed by `offcert.certify.recheck` with other code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.result import Bound, Evidence, Infeasibility

# Subset sums are told apart up to this many units; part of the bounds' definition.
FINEST = 1 << 22


@dataclass(frozen=True)
class HeadsAndTails:
    """Times that no schedule can beat, one entry an operation, in ticks.

    Attributes
    ----------
    heads : tuple of Fraction
        Earliest start of each operation.
    tails : tuple of Fraction
        Least time from the start of each operation to the end of the step.
    """

    heads: tuple[Fraction, ...]
    tails: tuple[Fraction, ...]

    @property
    def bound(self) -> int:
        """The least makespan that all heads and tails allow, rounded up to whole ticks."""
        return max(math.ceil(h + t) for h, t in zip(self.heads, self.tails, strict=True))


def infeasibility(problem: Problem) -> Infeasibility | None:
    """Return the operation that lacks most memory even if all else has left, or None.

    The condition is exact: with unlimited time, everything that an operation does not use can
    leave before it starts, so a schedule exists if every operation fits in this sense.
    """
    trace = problem.trace
    memory = problem.platform.memory
    worst = Infeasibility(-1, "the start", trace.resident_at_start, 0)
    if trace.resident_at_start > memory:
        worst = Infeasibility(
            -1, "the start", trace.resident_at_start, trace.resident_at_start - memory
        )
    for index, operation in enumerate(trace.operations):
        absent = sum(trace.gap_size(gap) for gap in trace.gaps_over[index])
        needed = trace.demand[index] - absent
        if needed - memory > worst.lacking:
            worst = Infeasibility(index, operation.name, needed, needed - memory)
    return worst if worst.lacking > 0 else None


def required_absent(problem: Problem, subset_sum: bool = False) -> list[int]:
    """Return, for each operation, the bytes that must be absent while it runs.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    subset_sum : bool
        Round up to a sum of sizes of tensors that may be absent then. Valid for atomic transfers,
        where a tensor is absent as a whole or not at all (NOTES, §1).

    Returns
    -------
    list of int
        Bytes, at least 0.
    """
    trace = problem.trace
    need = [max(0, demand - problem.platform.memory) for demand in trace.demand]
    if not subset_sum:
        return need
    return [
        least_subset_sum(tuple(sorted(trace.gap_size(gap) for gap in spanning)), amount)
        for amount, spanning in zip(need, trace.gaps_over, strict=True)
    ]


@lru_cache(maxsize=1 << 14)
def least_subset_sum(sizes: tuple[int, ...], amount: int) -> int:
    """Return a lower bound on the least sum of a subset of `sizes` that is at least `amount`.

    It is exact unless the sum of `sizes`, in units of their greatest common divisor, exceeds
    ``FINEST``. Then each size is rounded down to a coarser unit, which can only make the sum found
    smaller, and the answer is still at least `amount`.

    Parameters
    ----------
    sizes : tuple of int
        Positive.
    amount : int
        At most the sum of `sizes`.
    """
    if amount <= 0:
        return 0
    unit = math.gcd(*sizes)
    slack = 0
    if sum(sizes) > FINEST * unit:
        unit = -(-sum(sizes) // FINEST)
        slack = len(sizes) * (unit - 1)
    reachable = 1  # bit k: some subset makes k units
    for size in sizes:
        reachable |= reachable << (size // unit)
    target = max(0, -(-(amount - slack) // unit))
    above = reachable >> target
    return max(amount, (target + (above & -above).bit_length() - 1) * unit)


def heads_and_tails(problem: Problem, required: Sequence[int]) -> HeadsAndTails:
    """Return the earliest start and the least tail of each operation.

    Before an operation starts, ``required`` bytes of tensors that may be absent while it runs must
    have left, each byte once, one after the other over the link, and none before its writer has
    ended. So the operation cannot start before a link that serves only those tensors, in the order
    in which they become available and bit by bit, has moved that many bytes. After it has ended,
    the same bytes must return before the operations that close their gaps: the mirror image, at the
    rate of the other direction. The argument holds for every kind of transfer, any trace, both
    kinds of link, and for schedules in which prefetches precede later offloads.

    On nested traces (chains, networks) with fractional transfers the largest head plus tail is the
    optimum: the offloading paper's Theorem 2, with its Lemma 1 repaired as in NOTES, §1.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    required : sequence of int
        Bytes, from `required_absent`.
    """
    trace = problem.trace
    out, back = (1 / problem.platform.rate(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
    count = len(trace)
    heads = [Fraction(0)] * count
    for operation in range(count):
        earliest = heads[operation - 1] + trace.durations[operation - 1] if operation else 0
        if required[operation]:
            available = []
            for gap in trace.gaps_over[operation]:
                writer = trace.tensors[trace.gaps[gap].tensor].uses[0]
                written = heads[writer] + trace.durations[writer] if writer >= 0 else Fraction(0)
                available.append((written, trace.gap_size(gap)))
            earliest = max(earliest, _time_to_move(available, required[operation], out))
        heads[operation] = Fraction(earliest)
    tails = [Fraction(0)] * count
    for operation in reversed(range(count)):
        rest = tails[operation + 1] if operation + 1 < count else Fraction(0)
        if required[operation]:
            available = [
                (tails[trace.gaps[gap].after], trace.gap_size(gap))
                for gap in trace.gaps_over[operation]
            ]
            rest = max(rest, _time_to_move(available, required[operation], back))
        tails[operation] = rest + trace.durations[operation]
    return HeadsAndTails(tuple(heads), tuple(tails))


def _time_to_move(available: list[tuple[Fraction, int]], amount: int, unit: Fraction) -> Fraction:
    """Return when a link has moved `amount` bytes of data that becomes available over time.

    `unit` is what a byte takes, in ticks.
    """
    free = Fraction(0)
    for ready, size in sorted(available):
        part = min(size, amount)
        free = max(free, ready) + part * unit
        amount -= part
        if amount == 0:
            break
    return free


def prop3_bound(problem: Problem, subset_sum: bool = False) -> Bound:
    """Return the bound of Prop. 3 of the offloading paper.

    The step lasts at least as long as all operations, and at least as long as the largest amount
    that must be absent takes to leave and come back: no byte of it can do both at once, and both
    must happen on either side of an operation, on a duplex link too.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    subset_sum : bool
        Round the amounts up to reachable subset sums first; only for atomic transfers.
    """
    amount = max(required_absent(problem, subset_sum))
    move = math.ceil(sum(amount / problem.platform.rate(kind) for kind in Kind))
    name = "prop3-subset-sum" if subset_sum else "prop3"
    return Bound(name, max(problem.trace.compute_time, move), Evidence.PROVED)


def fractional_bound(problem: Problem, subset_sum: bool = False) -> Bound:
    """Return the largest head plus tail: on nested traces, the fractional optimum.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    subset_sum : bool
        Round the amounts up to reachable subset sums first; only for atomic transfers.
    """
    times = heads_and_tails(problem, required_absent(problem, subset_sum))
    name = "fractional-subset-sum" if subset_sum else "fractional"
    return Bound(name, times.bound, Evidence.PROVED)
