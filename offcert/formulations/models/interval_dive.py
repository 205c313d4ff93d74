"""Dives: asking the interval model for a schedule that is as short as the bound says.

The bound on chains is often exact. A schedule of that length has hardly any choice about when its
first and last operations run: every window is narrow, and CP-SAT either meets the bound, proves
that nothing does (the bound rises), or knows nothing after a few seconds, when another seed or a
little more room may help. No incumbent is needed, and none holds the search in its own basin:
schedules that offload after the turn are as near as any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from offcert.core.problem import Problem
from offcert.core.result import SolveStatus
from offcert.core.schedule import Schedule
from offcert.formulations.common.cpsat import CP_SAT
from offcert.formulations.common.outcome import ModelOutcome, SolverClaim
from offcert.formulations.models.interval_cpsat import solve

# A dive takes half of the time, and every second one leaves room above the bound.
_DIVES = 2


def dive(
    problem: Problem,
    incumbent: Schedule,
    *,
    lower_bound: int = 0,
    time_limit: float = 10.0,
    workers: int = 1,
    seed: int = 0,
    on_solution: Callable[[Schedule], object] | None = None,
) -> ModelOutcome:
    """Look for schedules that meet a lower bound, or nearly do.

    Parameters
    ----------
    problem : Problem
        Feasible, atomic transfers; any trace and link.
    incumbent : Schedule
        A valid one; returned if nothing better is found.
    lower_bound : int
        Ticks; the length that is asked for. It needs no proof: nothing rests on it.
    time_limit : float
        Seconds.
    workers, seed : int
        For the solver; each dive has a seed of its own.
    on_solution : callable, optional
        Receives each better schedule as soon as it is found, from another thread.

    Returns
    -------
    ModelOutcome
        Its bound is what the solver refuted plus one, or the compute time if it refuted nothing;
        then there is no claim. ``statistics["dives"]`` says how many dives there were.
    """
    began = time.monotonic()
    deadline = began + time_limit
    random = np.random.default_rng(seed)
    best = incumbent
    bound = problem.trace.compute_time
    lowest = max(lower_bound, bound)
    statistics: dict[str, object] = {"time_limit": time_limit, "workers": workers, "seed": seed}
    error, interrupted = None, False
    dives = 0
    while best.makespan > lowest and (left := deadline - time.monotonic()) > 0:
        target = lowest
        if dives % _DIVES == _DIVES - 1:
            target += int(random.random() * (best.makespan - 1 - lowest))
        outcome = solve(
            problem,
            time_limit=min(left, time_limit / _DIVES),
            workers=workers,
            seed=int(random.integers(2**31 - 1)),
            upper_bound=target,
            energy=False,
            on_solution=on_solution,
        )
        dives += 1
        # Those of the last dive count.
        settings = outcome.statistics
        statistics |= {name: settings[name] for name in ("solver", "grid") if name in settings}
        error, interrupted = outcome.error, outcome.interrupted
        if outcome.schedule is not None and outcome.schedule.makespan < best.makespan:
            best = outcome.schedule
        # A dive that was cut short has a valid bound too, but perhaps below the one that was given.
        bound = max(bound, outcome.lower_bound)
        lowest = max(lowest, bound)
        if interrupted or error is not None:
            break
    statistics["dives"] = dives
    status = SolveStatus.OPTIMAL if best.makespan <= bound else SolveStatus.FEASIBLE
    claim = SolverClaim(bound, CP_SAT) if bound > problem.trace.compute_time else None
    seconds = round(time.monotonic() - began, 3)
    return ModelOutcome(status, best, bound, claim, error, interrupted, seconds, statistics)
