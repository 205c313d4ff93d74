"""Time-indexed models of transfers, solved by CP-SAT or by any linear solver.

In the pure form (``plain``) they are told nothing: literals "has started by cell t" with windows
from durations alone, no rounding of amounts, no schedule to begin with. Else windows follow from
heads, tails and the best schedule known, and only shorter ones are looked for. For transfers that
may pause, a cell has the amount that is moved in it instead of the start of a transfer.
"""

from __future__ import annotations

import math
import time

from offcert.core.errors import InputError
from offcert.formulations.common.grid import longest_makespan
from offcert.formulations.common.linear_solvers import (
    CPSAT,
    SCIPY,
    claimant,
    require_solver,
    run_model,
)
from offcert.formulations.common.outcome import ModelOutcome, ModelRun
from offcert.formulations.common.time_grid import (
    TimeGrid,
    build_grid,
    choose_grid,
    require_coarse_enough,
)
from offcert.formulations.fluid.exact import FluidOutcome, schedule_with
from offcert.formulations.fluid.program import FixedDecisions
from offcert.formulations.models.pausing_cells import PausingCells
from offcert.formulations.models.stage_milp import RELATIVE_MARGIN
from offcert.formulations.models.time_indexed_model import TimeIndexedModel
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Pairs of an item and a cell for which a grid is chosen by default, and the most that are allowed:
# more takes too long to hand to a solver. Assumed.
_USUAL, _LARGEST = 10_000, 500_000
# A binary may be off by 1e-6, in each of a window's cells; as much again as for the stages.
_MARGIN = 2 * RELATIVE_MARGIN
# How far CP-SAT's integer bound may be off, as it reports a float. Assumed.
_ROUNDING = 1e-6


def solve(
    problem: Problem,
    solver: str = SCIPY,
    *,
    time_limit: float = 60.0,
    threads: int = 1,
    seed: int = 0,
    grid: int | None = None,
    upper_bound: int | None = None,
    hint: Schedule | None = None,
    lower_bound: int = 0,
    plain: bool = False,
) -> ModelOutcome:
    """Solve a problem with atomic transfers, or bound it.

    Parameters
    ----------
    problem : Problem
        A problem with any trace and link.
    solver : str
        ``"cpsat"``, ``"scipy"`` for HiGHS, or a name that PuLP knows.
    time_limit : float
        Seconds, building the model included.
    threads, seed : int
        For the solver.
    grid : int, optional
        Ticks a cell. On a grid that divides all durations the model is exact; on a coarser one its
        optimum is a lower bound. By default as fine as leaves a model of moderate size.
    upper_bound : int, optional
        Ticks; longer schedules are of no interest. The closer to the optimum, the smaller the
        model.
    hint : Schedule, optional
        A valid schedule; it is returned if nothing better is found. Only shorter ones are looked
        for, unless the windows alone leave none.
    lower_bound : int
        Ticks; a bound already proved elsewhere.
    plain : bool
        Whether the model is the pure one.

    Returns
    -------
    ModelOutcome
        Also when the time runs out, the solver fails or the user interrupts.

    Raises
    ------
    InputError
        If the solver is unknown or not available, `grid` is less than 1, or so fine that the model
        is too large.
    """
    run = _run(problem, solver, time_limit, upper_bound, hint, lower_bound)
    run.statistics |= {"threads": threads, "seed": seed}
    if not run.feasible or run.finished:
        return run.outcome()
    whole = solver == CPSAT
    with run.kept():
        data = _grid_of(run, grid, plain)
        if data is None:
            run.nothing_within()
            return run.outcome()
        run.statistics |= {"grid": data.grid, "pairs": data.variables}
        ends = time.monotonic() + time_limit - run.elapsed
        model = TimeIndexedModel(data, problem.platform.duplex, whole, ends)
        answer = run_model(run, model.model, solver, time_limit, threads, seed)
        if answer.infeasible:
            run.nothing_within()
        if math.isfinite(answer.bound):
            least = math.ceil(answer.bound - _ROUNDING) if whole else answer.bound
            cells = data.operations[-1].last + least
            ticks = cells * data.grid + problem.trace.durations[-1]
            run.take_bound(ticks, 0.0 if whole else _MARGIN * run.upper)
        if answer.values is not None:
            plans = data.plans(problem.trace, *model.decisions(answer.values))
            run.take_plans(plans, exact=data.exact)
    return run.outcome()


def solve_pausing(
    problem: Problem,
    solver: str = SCIPY,
    *,
    time_limit: float = 60.0,
    threads: int = 1,
    seed: int = 0,
    grid: int | None = None,
) -> FluidOutcome:
    """Solve a problem with interruptible transfers by the pure model.

    On a grid of one tick the program of a linear solver is exact, so its bound counts. On a coarser
    one, and where CP-SAT moves whole units of data in each cell, what is found is a schedule and no
    bound. Parameters as for `solve`.
    """
    run = _run(problem, solver, time_limit)
    bound, schedule = problem.trace.compute_time, None
    deadline = time.monotonic() + time_limit
    with run.kept():
        cell = _pausing_grid(problem, grid)
        model = PausingCells(problem, cell, longest_makespan(problem), solver == CPSAT, deadline)
        run.statistics |= {"grid": cell, "columns": len(model.model.low)}
        answer = run_model(run, model.model, solver, 0.9 * time_limit, threads, seed)
        if answer.infeasible:
            run.nothing_within()
        if solver != CPSAT and cell == 1 and math.isfinite(answer.bound):
            start = model.data.operations[-1].last + answer.bound
            ticks = math.ceil(start + problem.trace.durations[-1] - _MARGIN * run.upper)
            bound = max(bound, min(ticks, run.upper + 1))
        if answer.values is not None:
            evicted, idle = model.chosen(problem, answer.values)
            schedule = schedule_with(problem, FixedDecisions(evicted, None, idle), deadline)
            if schedule is None:
                run.error = "no schedule could be made of the solution"
    if run.interrupted:
        raise KeyboardInterrupt
    return FluidOutcome(bound, schedule, False, **run.record)


def _run(
    problem: Problem,
    solver: str,
    time_limit: float,
    upper_bound: int | None = None,
    hint: Schedule | None = None,
    lower_bound: int = 0,
) -> ModelRun:
    if solver != CPSAT:
        require_solver(solver)
    return ModelRun(
        problem, upper_bound, hint, lower_bound, solver=claimant(solver), time_limit=time_limit
    )


def _grid_of(run: ModelRun, grid: int | None, plain: bool) -> TimeGrid | None:
    """Return the problem on its grid, or None if no schedule fits; `run.upper` is set to match."""
    for limit in run.limits:
        run.upper, cell = limit, grid
        if cell is None:
            cell = choose_grid(run.problem, run.upper, _USUAL, plain)
        data = build_grid(run.problem, cell, run.upper, plain)
        if data is not None:
            require_coarse_enough(data, _LARGEST)
            return data
    return None


def _pausing_grid(problem: Problem, grid: int | None) -> int:
    upper = longest_makespan(problem)
    items = len(problem.trace) + 2 * len(problem.trace.gaps)
    cell = max(1, -(-upper * items // _USUAL)) if grid is None else grid
    pairs = -(-upper * items // max(1, cell))
    if pairs > _LARGEST:
        raise InputError(
            f"grid must be at least about {-(-pairs * cell // _LARGEST)} ticks here, not {cell}: "
            f"{pairs} variables are too many"
        )
    return cell
