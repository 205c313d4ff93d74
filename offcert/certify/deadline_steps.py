"""The step that minimises memory within a deadline: by halving limits, and minimising time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from offcert.certify.effort import Effort
from offcert.certify.joint_search import JointSearch
from offcert.certify.search import Search
from offcert.core.problem import Minimise, Problem
from offcert.core.result import Evidence
from offcert.core.schedule import Schedule
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.claims import proved
from offcert.proofs.kinds import MemoryByTime
from offcert.proofs.settings import Settings

# Limits tried, and the part of the range of memory that is worth another one.
_MOST_LIMITS = 12
_FINE = 1 / 256


def halve_limits(search: Search, effort: Effort) -> None:
    """Try limit after limit: a schedule in time is one for that memory, a proof a bound on it.

    Where neither is found, the limit lies between both; the next ones are tried on either side, in
    turn.
    """
    problem = search.problem
    if problem.minimise is not Minimise.MEMORY or problem.deadline is None:
        return
    assert isinstance(search, JointSearch)
    search.begin("limit after limit")
    low, high = search.proved_bound - 1, search.objective
    if high is None:
        return
    # Limits within which nothing was found, and above which nothing was proved.
    open_low, open_high = high, low
    fine = max(1, int((high - low) * _FINE))
    for turn in range(_MOST_LIMITS):
        if search.done:
            return
        # Between what is proved and what is open, or between what is open and what is found.
        lower = (low + min(open_low, high)) // 2
        upper = (max(open_high, low) + high + 1) // 2
        limit = upper if turn % 2 == 0 else lower
        if limit <= low or limit >= high:
            limit = (low + high) // 2
        if high - low <= fine or limit <= low:
            return
        found = _try(search, limit, effort, effort.seconds / _MOST_LIMITS)
        if found is None:
            open_low, open_high = min(open_low, limit), max(open_high, limit)
        elif found:
            high = limit
        else:
            low = limit


def _try(search: JointSearch, limit: int, effort: Effort, seconds: float) -> bool | None:
    """Return whether the deadline can be met within a limit; None if that is not known."""
    from offcert.certify.ladder import climb, search_for

    problem = search.problem
    deadline = problem.deadline
    assert deadline is not None
    timed = _timed(problem, limit)
    if infeasibility(timed) is not None:
        return False
    inner, rungs = search_for(timed, min(seconds, search.remaining))
    inner.enough = deadline
    climb(
        inner, rungs, partial(inner.certificate, "certify", Settings()), effort.workers, effort.seed
    )
    if inner.proved_bound > deadline:
        best = max(
            (bound for bound in inner.bounds if bound.evidence is Evidence.PROVED),
            key=lambda bound: bound.value,
        )
        proof = MemoryByTime(
            limit=limit, method=best.method, ticks=best.value, details=dict(best.details)
        )
        if limit + 1 > search.proved_bound:
            search.add(proved("least-memory-by-time", limit + 1, proof))
        return False
    found = inner.best
    if isinstance(found, Schedule) and found.makespan <= deadline:
        execution = inner.execution if isinstance(inner, JointSearch) else None
        search.offer_executed(execution, found, limit)
        return True
    return None


def _timed(problem: Problem, limit: int) -> Problem:
    """Return the problem of least time within a limit."""
    platform = replace(problem.platform, memory=limit)
    return replace(problem, platform=platform, minimise=Minimise.TIME, deadline=None)
