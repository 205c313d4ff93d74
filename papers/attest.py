"""Attesting best values: two formulations on two solvers, told nothing but a schedule."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from offcert.certification.interrupts import watched
from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.bounds import climb_interval, climb_stage
from offcert.core.errors import InputError
from offcert.proofs.any_certificate import Settings
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute, Transfers
from offcert.questions.schedule.result import require_search
from offcert.questions.schedule.schedule import Schedule


def attest(
    problem: Problem, schedule: Schedule, *, time_limit: float = 60.0, seed: int = 0
) -> Certificate:
    """Ask CP-SAT and HiGHS, each with a model of its own, for a schedule shorter than one.

    Neither is told a bound, ours or the other's: if both find that there is none, the length of
    the schedule is cross-attested, independently of every proof.

    Parameters
    ----------
    problem : Problem
        Atomic transfers; everything runs once.
    schedule : Schedule
        A valid one; the shorter, the less there is to refute.
    time_limit : float
        Seconds; CP-SAT gets half of it. If it does not end, HiGHS is not asked.
    seed : int
        For CP-SAT.

    Returns
    -------
    Certificate
        With the best schedule and what both claim.

    Raises
    ------
    InputError
        If the problem is of another kind, or a setting out of its range.
    UnsoundError
        If the schedule is none of the problem.
    """
    if problem.transfers is not Transfers.ATOMIC or problem.recompute is not Recompute.NONE:
        raise InputError(
            f"problem {problem.name} cannot be attested: the models are for atomic transfers where "
            "everything runs once"
        )
    time_limit, _, _, seed = require_search(problem, time_limit, 1, 0.0, seed)
    search = Search(problem, time_limit)
    settings = Settings(time_limit=time_limit, workers=1, seed=seed)
    known = partial(search.certificate, "attest", settings)
    effort = Effort(time_limit / 2, workers=1, seed=seed)
    search.offer(schedule)
    with watched(search, time_limit, known), search.surviving():
        climb_interval(search, effort)
        if search.done:
            climb_stage(search, replace(effort, seconds=search.remaining), exact=True)
    return known()
