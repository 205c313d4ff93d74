"""Plans by one rule each: `greedy`, `sequential`, and `least_cover_plan`.

GREEDY offloads the first activations until the peak fits (offloading paper, §4.2, Theorem 2).
The sequential plan works at any feasible memory limit: it evicts just before an operation needs the
room. The plan of the least cover, ours, evicts as little as whole tensors allow where most has to
be absent. Where one operation decides, as in the reductions from 2-partition, what must leave is a
subset of the tensors with the least sum that is enough, and searches by exchanges seldom hit it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush

from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind
from offcert.heuristics.orders.ordered import ordered_makespan, ordered_orders, ordered_plan
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem


def greedy_gaps(problem: Problem) -> list[int]:
    """Return the gaps that GREEDY evicts, in the order in which their tensors become available.

    The least ``k`` with ``sum of the first k sizes >= M_peak - M``, as in the paper. Where every
    gap is nested around the turn, those that span an operation are the first ones, so this set
    serves every operation that any set serves. On other traces it may not; activations are then
    added, in the same order, until it does or all are taken.

    Raises
    ------
    MethodError
        If some tensor has several gaps.
    """
    trace, platform = problem.trace, problem.platform
    if len({gap.tensor for gap in trace.gaps}) < len(trace.gaps):
        raise MethodError("GREEDY needs a trace in which every tensor has at most one gap")
    order, _ = ordered_orders(problem, range(len(trace.gaps)))
    excess = trace.peak_memory - platform.memory
    count = moved = 0
    while moved < excess and count < len(order):
        moved += trace.gap_size(order[count])
        count += 1
    # Where some operation still does not fit there is no schedule, and none is looked for.
    count = max(count, _least_that_fits(problem, order))
    while count < len(order) and ordered_makespan(problem, order[:count]) is None:
        count += 1
    return order[:count]


def _least_that_fits(problem: Problem, order: Sequence[int]) -> int:
    """Return how many gaps have to be absent for every operation to fit, at most all."""
    trace, memory = problem.trace, problem.platform.memory

    def fits(count: int) -> bool:
        chosen = set(order[:count])
        absent = 0
        for operation, demand in enumerate(trace.demand):
            absent += sum(trace.gap_size(g) for g in trace.gaps_entering[operation] if g in chosen)
            absent -= sum(trace.gap_size(g) for g in trace.gaps_leaving[operation] if g in chosen)
            if demand - absent > memory:
                return False
        return True

    return bisect_left(range(len(order)), True, key=fits)


def greedy(problem: Problem) -> Plan:
    """Return GREEDY's plan: the ordered, no-wait schedule of the first activations.

    Parameters
    ----------
    problem : Problem
        A chain, or any trace in which every tensor has at most one gap.

    Returns
    -------
    Plan
        Empty if the peak fits.

    Raises
    ------
    MethodError
        If some tensor has several gaps, or no number of activations suffices.
    """
    return ordered_plan(problem, greedy_gaps(problem))


def sequential(problem: Problem) -> Plan:
    """Return a plan that serves the operations one after the other.

    Before each operation, tensors leave, the one needed furthest in the future first (Belady's
    rule), until the operation fits; then those it uses come back. No operation ever waits for
    anything later, so the plan runs whenever any plan does. It is the last resort of every search.

    Raises
    ------
    MethodError
        If no plan exists at this memory limit.
    """
    trace = problem.trace
    moves: list[Move] = []
    gone: set[int] = set()
    copied: set[int] = set()
    absent = 0
    # What may leave, the one needed furthest in the future first.
    candidates: list[tuple[int, int]] = []
    for operation in range(len(trace)):
        back = [gap for gap in trace.gaps_leaving[operation] if gap in gone]
        absent -= sum(map(trace.gap_size, back))
        for gap in trace.gaps_entering[operation]:
            heappush(candidates, (-trace.gaps[gap].after, gap))
        need = trace.demand[operation] - problem.platform.memory - absent
        while need > 0 and candidates and -candidates[0][0] > operation:
            _, gap = heappop(candidates)
            need -= trace.gap_size(gap)
            absent += trace.gap_size(gap)
            gone.add(gap)
            if trace.gaps[gap].tensor not in copied:
                copied.add(trace.gaps[gap].tensor)
                moves.append(Move(Kind.OFFLOAD, gap, operation))
        if need > 0:
            name = trace.operations[operation].name
            raise MethodError(f"operation {operation} ({name}) lacks {need} bytes in every plan")
        moves += (Move(Kind.PREFETCH, gap, operation) for gap in back)
    return Plan(moves)


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
