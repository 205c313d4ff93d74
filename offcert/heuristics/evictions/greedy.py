"""GREEDY: offload the first activations until the peak fits (offloading paper, §4.2, Theorem 2)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from offcert.core.errors import MethodError
from offcert.heuristics.orders.ordered import ordered_makespan, ordered_orders, ordered_plan
from offcert.questions.schedule.plan import Plan
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
