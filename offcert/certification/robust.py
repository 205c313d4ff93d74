"""Certificates for a box of uncertain times: a bound at one corner, a plan followed at the other.

See docs/theory/uncertain-times.md. The plan is the one that is found for the times that the problem
says; its order is fixed, so its time at the slowest corner is the longest in the box.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from offcert.certification.running import SearchProgress
from offcert.core.result import Evidence
from offcert.core.uncertainty import executed_on
from offcert.proofs.certificate import Certificate, Robust
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import Simulator, simulate
from offcert.questions.schedule.slowing import latest

# Share of the time for the nominal times. The rest is for bounds at the fastest corner, which are
# there early: the search for schedules there takes longest, and nobody needs it. Arbitrary.
_NOMINAL = 0.7


def certify_box(
    problem: Problem,
    search: Callable[..., Certificate],
    time_limit: float,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[Certificate], None] | None = None,
    known: Certificate | None = None,
) -> Certificate:
    """Certify a problem with uncertain times: for the times that it says, and for the box.

    Parameters
    ----------
    problem : Problem
        A problem with a box.
    search : callable
        `offcert.certification.ladder.certify`, which is given problems with exact times.
    time_limit : float
        Seconds for everything.
    progress, keep, known
        As for `search`: all are about the times that the problem says.

    Returns
    -------
    Certificate
        About the box only if it has a schedule of least time with whole transfers.
    """
    begun = time.monotonic()

    def whole(found: Certificate) -> None:
        assert keep is not None
        keep(replace(found, problem=problem))

    found = search(
        replace(problem, uncertainty=None),
        time_limit=_NOMINAL * time_limit,
        progress=progress,
        keep=None if keep is None else whole,
        known=known and replace(known, problem=replace(known.problem, uncertainty=None)),
    )
    settings = replace(found.settings, time_limit=time_limit)
    boxed = replace(found, problem=problem, settings=settings)
    schedule = found.result.schedule
    if isinstance(schedule, Schedule) and problem.minimise is Minimise.TIME:
        left = time_limit - (time.monotonic() - begun)
        # Who has interrupted the search does not want to wait for another one.
        seconds = min(1.0, left) if found.notes.interrupted else left
        corner = problem.corner(fastest=True)
        # Only what is proved counts there, so that no solver's word may end the search.
        fastest = search(corner, time_limit=max(seconds, 0.1), attested=False)
        proved = (each for each in fastest.result.bounds if each.evidence is Evidence.PROVED)
        boxed = replace(boxed, robust=Robust(longest(boxed, schedule), tuple(proved)))
    return replace(boxed, result=replace(found.result, runtime=time.monotonic() - begun))


def longest(certificate: Certificate, schedule: Schedule) -> int:
    """Return the most ticks of a certificate's plan in its problem's box: at the slowest corner.

    Where directions of the link slow each other down, it takes no more, and may take less.
    """
    plan = schedule.plan(certificate.executed.trace)
    runs = _at_corner(certificate, fastest=False)
    if not runs.platform.slows:
        return simulate(runs, plan).makespan
    early = simulate(_at_corner(certificate, fastest=True), plan)
    return latest(runs, early, partial(Simulator(runs).timed, plan)).makespan


def _at_corner(certificate: Certificate, *, fastest: bool) -> Problem:
    problem, execution = certificate.problem, certificate.result.execution
    corner = problem.corner(fastest=fastest)
    if execution is None:
        return corner.plain()
    assert problem.computed is not None
    assert corner.computed is not None
    return corner.executed(executed_on(execution, problem.computed, corner.computed))
