"""Shortest schedules of planners' decisions within a limit."""

from __future__ import annotations

from collections.abc import Iterable

from offcert.certification.other_ways import Decision, stepwise
from offcert.core.errors import MethodError
from offcert.heuristics.orders.ordered import ordered_orders, ordered_schedule
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.verification.execution import execution_faults


def schedule_of(problem: Problem, decision: Decision) -> Schedule | None:
    """Return the schedule of a decision within a problem's memory; None if none is found.

    What leaves does so as early as it can, and returns as late as it may, all before what must
    return later: no framework moves the same tensors in less time. So what a decision loses here
    it loses by what it decides, not by when it copies.

    Raises
    ------
    AssertionError
        If the decision is no legal execution of the step.
    """
    network = problem.computed
    assert network is not None
    faults = execution_faults(network, decision.execution)
    assert not faults, faults[0]
    executed = problem.executed(decision.execution)
    try:
        found = ordered_schedule(executed, *ordered_orders(executed, decision.away))
    except MethodError:
        found = stepwise(executed, set(decision.away), wait=False)
    return found if not check(executed, found) else None


def shortest(problem: Problem, decisions: Iterable[Decision]) -> int | None:
    """Return the ticks of the shortest of some decisions that fits; None if none does."""
    found = (schedule_of(problem, decision) for decision in decisions)
    return min((each.makespan for each in found if each is not None), default=None)
