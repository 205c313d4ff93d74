"""The interval model solved by CP-SAT; and dives, which ask for a schedule as short as the bound.

The bound on chains is often exact. A schedule of that length has hardly any choice about when its
first and last operations run: every window is narrow, and CP-SAT either meets the bound, proves
that nothing does (the bound rises), or knows nothing after a few seconds, when another seed or a
little more room may help. No incumbent is needed, and none holds the search in its own basin:
schedules that offload after the turn are as near as any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from offcert.core.result import SolveStatus
from offcert.formulations.common.cpsat import bound_by, complete_hint, solver_with
from offcert.formulations.common.outcome import (
    CP_SAT,
    ModelOutcome,
    ModelRun,
    OnSolution,
    SolverClaim,
    SolverRun,
    rough_plans,
)
from offcert.formulations.models.interval_data import IntervalData, choose_grid, prepare
from offcert.formulations.models.interval_model import IntervalModel
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Share of the time limit that may go into completing a hint, at most. Arbitrary.
_HINT_SHARE = 0.2
# How far the solver's integer bound may be off, as it reports a float. Assumed.
_MARGIN = 1e-6


def solve(
    problem: Problem,
    *,
    time_limit: float = 60.0,
    workers: int = 1,
    seed: int = 0,
    hint: Schedule | None = None,
    lower_bound: int = 0,
    upper_bound: int | None = None,
    grid: int | None = None,
    ordered: bool = False,
    near: bool = False,
    on_solution: OnSolution | None = None,
    stop: Callable[[], bool] | None = None,
) -> ModelOutcome:
    """Solve a problem with atomic transfers, or find out how good its best schedule can be.

    Parameters
    ----------
    problem : Problem
        A problem with any trace and link.
    time_limit : float
        Seconds, building the model included.
    workers, seed : int
        For the solver.
    hint : Schedule, optional
        A valid schedule; it is returned if nothing better is found. The solver begins with it, and
        looks for better ones near the best.
    lower_bound : int
        Ticks; a bound already proved elsewhere.
    upper_bound : int, optional
        Ticks; longer schedules are of no interest. The hint's makespan if that is less.
    grid : int, optional
        Ticks a cell; the finest that the solver's 64-bit arithmetic allows by default. Coarser
        grids give bounds sooner; they are rounded optimistically, so all are valid.
    ordered : bool
        Whether all offloads must end before any prefetch starts. Bound and status then hold for
        such schedules only; a trace with several gaps a tensor may have none of them.
    near : bool
        Whether only better schedules near the best one are looked for, beginning with the hint.
    on_solution : callable, optional
        Receives each better schedule as soon as it is found, from another thread.
    stop : callable, optional
        Asked several times a second whether to stop early.

    Returns
    -------
    ModelOutcome
        Also when the time runs out, the solver fails or the user interrupts.
    """
    run = _IntervalRun(
        problem,
        upper_bound,
        hint,
        lower_bound,
        # The solver is given this bound, so what it proves may rest on it.
        given_lower_bound=lower_bound,
        time_limit=time_limit,
        workers=workers,
        seed=seed,
        ordered=ordered,
        on_solution=on_solution,
    )
    if run.feasible and not (hint is not None and run.finished):
        with run.kept():
            run.start(choose_grid(problem, run.upper) if grid is None else grid)
            if run.data is not None:
                run.build(hint, ordered, time_limit)
                run.search(time_limit, workers, seed, stop, near)
    return run.outcome()


class _IntervalRun(ModelRun):
    """One call of `solve`: the model on its grid, and the solver."""

    def __init__(self, *known: Any, on_solution: OnSolution | None, **settings: Any) -> None:
        super().__init__(
            *known,
            solver=CP_SAT,
            claim_name="solver_bound",
            on_solution=on_solution,
            **settings,
        )
        self.statistics["solver"] += f" {version('ortools')}"
        self.data: IntervalData | None = None

    def start(self, grid: int) -> None:
        """Round the problem to its grid."""
        self.data = prepare(self.problem, grid, self.upper)
        self.statistics["grid"] = grid
        if self.data is None:
            self.nothing_within()
        else:
            self.statistics["exact"] = self.data.exact

    def build(self, hint: Schedule | None, ordered: bool, time_limit: float) -> None:
        """Build the model, with the hint and the bounds known so far."""
        assert self.data is not None
        self.model = IntervalModel(self.data, self.problem.platform.duplex, ordered)
        last = self.model.start[-1]
        # The last operation starts no earlier than the bound says; rounded down, like every start.
        least = (self.lower_bound - self.problem.trace.durations[-1]) // self.data.grid
        self.model.model.add(last >= least)
        if hint is not None:
            self.model.hint(hint)
            complete_hint(self.model.model, _HINT_SHARE * time_limit)
        self.statistics.update(
            {
                "gaps": len(self.data.gaps),
                "literals": 2 * len(self.model.left),
                "build_seconds": round(self.elapsed, 3),
            }
        )

    def search(
        self,
        time_limit: float,
        workers: int,
        seed: int,
        stop: Callable[[], bool] | None,
        near: bool,
    ) -> None:
        """Run the solver, and take over its answer."""
        solver = solver_with(workers, seed, near=self.best is not None, only=near)
        bound = bound_by(
            self,
            solver,
            self.model.model,
            time_limit,
            on_solution=self._take_solution,
            on_bound=self._take_start,
            stop=lambda: self.finished or (stop is not None and stop()),
        )
        if bound == math.inf:
            self.nothing_within()
        elif bound is not None:
            self._take_start(bound)

    def _take_start(self, bound: float) -> None:
        """Take a bound on the last operation's start, in cells."""
        assert self.data is not None
        if not math.isfinite(bound):
            return
        trace = self.problem.trace
        ticks = math.ceil(bound - _MARGIN) * self.data.grid + trace.durations[-1]
        # Less than that follows from the durations alone; on long traces no more comes in time.
        if ticks >= trace.compute_time:
            self.take_bound(ticks, margin=0.0)

    def _take_solution(self, value: Callable[[Any], int]) -> None:
        """Re-simulate a solution of the model: on a coarse grid it need not be feasible."""
        assert self.data is not None
        rough, exact = self.model.schedule(value), self.data.exact
        trace = self.problem.trace
        self.take_plans([rough.plan(trace)] if exact else rough_plans(trace, rough), exact)


# A dive takes the time limit over this number, and every so many dives one leaves room above the
# bound. Arbitrary.
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
    run = SolverRun(time_limit=time_limit, workers=workers, seed=seed)
    random = np.random.default_rng(seed)
    best = incumbent
    bound = problem.trace.compute_time
    lowest = max(lower_bound, bound)
    dives = 0
    while best.makespan > lowest and (left := time_limit - run.elapsed) > 0:
        target = lowest
        if dives % _DIVES == _DIVES - 1:
            target += int(random.random() * (best.makespan - 1 - lowest))
        outcome = solve(
            problem,
            time_limit=min(left, time_limit / _DIVES),
            workers=workers,
            seed=int(random.integers(2**31 - 1)),
            upper_bound=target,
            on_solution=on_solution,
        )
        dives += 1
        # Solver and grid of the last dive count.
        settings = outcome.statistics
        run.statistics |= {name: settings[name] for name in ("solver", "grid") if name in settings}
        run.error, run.interrupted = outcome.error, outcome.interrupted
        if outcome.schedule is not None and outcome.schedule.makespan < best.makespan:
            best = outcome.schedule
        # A dive that was cut short has a valid bound too, but perhaps below the one that was given.
        bound = max(bound, outcome.lower_bound)
        lowest = max(lowest, bound)
        if run.interrupted or run.error is not None:
            break
    run.statistics["dives"] = dives
    status = SolveStatus.OPTIMAL if best.makespan <= bound else SolveStatus.FEASIBLE
    claim = SolverClaim(bound, CP_SAT) if bound > problem.trace.compute_time else None
    return ModelOutcome(status, best, bound, claim, **run.record)
