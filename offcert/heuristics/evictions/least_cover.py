"""The plan that evicts as little as whole tensors allow where most has to be absent.

Ours. Where one operation decides, as in the reductions from 2-partition, what must leave is a
subset of the tensors with the least sum that is enough, and searches by exchanges seldom hit it.
"""

from __future__ import annotations

import math

from offcert.core.errors import NoPlanError
from offcert.heuristics.orders.ordered import ordered_plan
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem

# Bits of the largest table, one for each tensor and reachable sum: 32 MB. Arbitrary.
MOST_BITS = 1 << 28


def least_cover_plan(problem: Problem) -> Plan:
    """Return the ordered plan that evicts the least cover of the operation that needs most.

    Parameters
    ----------
    problem : Problem
        A feasible one.

    Raises
    ------
    MethodError
        If there are too many sums, or no ordered schedule evicts just these tensors.
    """
    trace = problem.trace
    need = [max(0, demand - problem.platform.memory) for demand in trace.demand]
    decisive = max(range(len(trace)), key=need.__getitem__)
    if not need[decisive]:
        return Plan()
    gaps = [number for number, gap in enumerate(trace.gaps) if gap.spans(decisive)]
    cover = least_cover([trace.gap_size(gap) for gap in gaps], need[decisive])
    return ordered_plan(problem, [gaps[index] for index in cover])


def least_cover(sizes: list[int], amount: int) -> list[int]:
    """Return the indices of a subset with the least sum that is at least `amount`.

    Parameters
    ----------
    sizes : list of int
        Positive.
    amount : int
        From 1 to their sum.

    Raises
    ------
    NoPlanError
        If their sums are too many to be listed.
    """
    unit = math.gcd(*sizes)
    units = [size // unit for size in sizes]
    # What stays behind is a subset with the greatest sum of at most the rest.
    rest = sum(units) - -(-amount // unit)
    if len(units) * (rest + 1) > MOST_BITS:
        raise NoPlanError(f"{len(units)} tensors have too many sums up to {rest} to be listed")
    window = (1 << (rest + 1)) - 1
    # Bit s of entry k: some subset of the first k sizes makes s.
    reachable = [1]
    for size in units:
        reachable.append((reachable[-1] | reachable[-1] << size) & window)
    rest = reachable[-1].bit_length() - 1
    leaving = []
    for index in reversed(range(len(units))):
        if reachable[index] >> rest & 1:
            leaving.append(index)
        else:
            rest -= units[index]
    return leaving[::-1]
