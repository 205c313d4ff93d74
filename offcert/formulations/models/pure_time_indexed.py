"""The time-indexed models in their pure form: literals "has started by cell t", and nothing else.

No windows from bounds, no order of pairs, no rounding of amounts, no schedule to begin with. The
sums of the start literals are the variables, which is the same model and has shorter rows. For
transfers that may pause a cell has no start of a transfer, but the amount that is moved in it.
"""

from __future__ import annotations

import math
import time
from importlib.metadata import version
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.errors import InputError
from offcert.formulations.common.cpsat import CP_SAT, run_cpsat, solver_with
from offcert.formulations.common.grid import longest_makespan
from offcert.formulations.common.linear_model import ONE, ROUNDING, LinearModel
from offcert.formulations.common.linear_solvers import SCIPY, LinearAnswer, run_model
from offcert.formulations.common.outcome import ModelOutcome, ModelRun
from offcert.formulations.common.time_grid import (
    TimeGrid,
    build_grid,
    choose_grid,
    require_coarse_enough,
)
from offcert.formulations.fluid.exact import FluidOutcome, schedule_with
from offcert.formulations.fluid.program import Decisions
from offcert.formulations.models.pausing_cells import PausingCells
from offcert.formulations.models.stage_milp import RELATIVE_MARGIN
from offcert.formulations.models.time_indexed_milp import TimeIndexedModel
from offcert.questions.schedule.problem import Problem

CPSAT = "cpsat"
# Pairs of an item and a cell for which a grid is chosen by default, and the most that are allowed:
# more takes too long to hand to a solver. Assumed.
_USUAL, _LARGEST = 10_000, 500_000


class WholeCells(TimeIndexedModel):
    """Cells of whole transfers, and nothing beside them.

    Parameters
    ----------
    data : TimeGrid
        The problem on its grid.
    duplex : bool
        Whether the directions of the link are independent.
    integers : bool
        Whether coefficients are integers, for a solver that counts in integers.
    """

    def __init__(self, data: TimeGrid, duplex: bool, integers: bool) -> None:
        self.slack, self.whole = (0.0, True) if integers else (ROUNDING, False)
        self.data, self._integers = data, integers
        self._add_cells(LinearModel(), duplex)
        for step in self.operations[-1]:
            for column, _ in step:
                if column != ONE:
                    self.model.cost[column] = -1.0

    def _scale(self, amount: int) -> int:
        return 1 if self._integers else amount


def solve_whole(
    problem: Problem,
    solver: str = SCIPY,
    *,
    time_limit: float = 60.0,
    threads: int = 1,
    seed: int = 0,
    grid: int | None = None,
) -> ModelOutcome:
    """Solve a problem with atomic transfers by the pure model, or bound it.

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

    Returns
    -------
    ModelOutcome
        Also when the time runs out or the solver fails.

    Raises
    ------
    InputError
        If `grid` is less than 1, or so fine that the model is too large.
    """
    name = CP_SAT if solver == CPSAT else solver
    run = ModelRun(problem, None, None, 0, solver=name, time_limit=time_limit)
    if not run.feasible:
        return run.outcome()
    with run.kept():
        data = _grid_of(problem, grid, run.upper)
        run.statistics |= {"grid": data.grid, "pairs": data.variables}
        model = WholeCells(data, problem.platform.duplex, solver == CPSAT)
        last = data.operations[-1].last
        answer = _answer(run, model.model, solver, time_limit, threads, seed)
        margin = 0.0 if solver == CPSAT else 2 * RELATIVE_MARGIN * run.upper
        if math.isfinite(answer.bound):
            least = math.ceil(answer.bound - 1e-6) if solver == CPSAT else answer.bound
            ticks = (last + least) * data.grid + problem.trace.durations[-1]
            run.take_bound(ticks, margin)
        if answer.values is not None:
            run.take_plans(
                data.plans(problem.trace, *model.decisions(answer.values)), exact=data.exact
            )
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
    bound. Parameters as for `solve_whole`.

    Raises
    ------
    InputError
        If `grid` is less than 1, or so fine that the model is too large.
    """
    name = CP_SAT if solver == CPSAT else solver
    run = ModelRun(problem, None, None, 0, solver=name, time_limit=time_limit)
    compute, schedule = problem.trace.compute_time, None
    bound, began = compute, time.monotonic()
    with run.kept():
        model = _pausing(problem, grid, solver == CPSAT)
        cell = model.data.grid
        run.statistics |= {"grid": cell, "columns": len(model.model.low)}
        answer = _answer(run, model.model, solver, 0.9 * time_limit, threads, seed)
        if solver != CPSAT and cell == 1 and math.isfinite(answer.bound):
            start = model.data.operations[-1].last + answer.bound
            margin = 2 * RELATIVE_MARGIN * run.upper
            ticks = math.ceil(start + problem.trace.durations[-1] - margin)
            bound = max(bound, min(ticks, run.upper + 1))
        if answer.values is not None:
            evicted, idle = model.chosen(problem, answer.values)
            decisions = Decisions(evicted, None, idle)
            deadline = began + time_limit
            schedule = schedule_with(problem, decisions, deadline)
            if schedule is None:
                run.error = "no schedule could be made of the solution"
    if run.interrupted:
        raise KeyboardInterrupt
    return FluidOutcome(
        bound, schedule, False, error=run.error, seconds=run.elapsed, statistics=run.statistics
    )


def _grid_of(problem: Problem, grid: int | None, upper: int) -> TimeGrid:
    cell = choose_grid(problem, upper, _USUAL, plain=True) if grid is None else grid
    data = build_grid(problem, cell, upper, plain=True)
    assert data is not None
    require_coarse_enough(data, _LARGEST)
    return data


def _pausing(problem: Problem, grid: int | None, integers: bool) -> PausingCells:
    upper = longest_makespan(problem)
    items = len(problem.trace) + 2 * len(problem.trace.gaps)
    cell = max(1, -(-upper * items // _USUAL)) if grid is None else grid
    pairs = -(-upper * items // max(1, cell))
    if pairs > _LARGEST:
        raise InputError(
            f"grid must be at least about {-(-pairs * cell // _LARGEST)} ticks here, not {cell}: "
            f"{pairs} variables are too many"
        )
    return PausingCells(problem, cell, upper, integers)


def _answer(
    run: ModelRun,
    model: LinearModel,
    solver: str,
    time_limit: float,
    threads: int,
    seed: int,
) -> LinearAnswer:
    if solver != CPSAT:
        return run_model(run, model, solver, time_limit, threads)
    return _ask_cpsat(run, model, time_limit, threads, seed)


def _ask_cpsat(
    run: ModelRun, linear: LinearModel, time_limit: float, threads: int, seed: int
) -> LinearAnswer:
    """Hand a program whose numbers are all integers to CP-SAT."""
    run.statistics |= {"version": version("ortools"), "columns": len(linear.low)}
    model = cp_model.CpModel()
    columns = [
        model.new_int_var(_whole(low), _whole(high), "")
        for low, high in zip(linear.low, linear.high, strict=True)
    ]
    for terms, low, high in linear.rows:
        total = sum(_whole(value) * columns[column] for column, value in terms)
        if math.isfinite(low):
            model.add(total >= math.ceil(low))
        if math.isfinite(high):
            model.add(total <= math.floor(high))
    costs = zip(linear.cost, columns, strict=True)
    # At least 0, which is the bound that the solver reports before it has one.
    least = sum(
        min(0, _whole(cost * high)) for cost, high in zip(linear.cost, linear.high, strict=True)
    )
    model.minimize(sum(_whole(cost) * column for cost, column in costs) - least)
    left = time_limit - run.elapsed
    if linear.contradictory or left <= 0:
        return LinearAnswer(None, -math.inf, False)
    solver = solver_with(threads, seed)
    end = run_cpsat(solver, model, left)
    run.interrupted = end.interrupted
    run.statistics["solver_status"] = solver.status_name(end.status)
    if end.status == cp_model.MODEL_INVALID:
        run.error = model.validate()
    if end.status == cp_model.INFEASIBLE:
        run.nothing_within()
    found: list[Any] | None = None
    if end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = [float(solver.value(column)) for column in columns]
    known = end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN)
    bound = max(0.0, solver.best_objective_bound) + least if known else -math.inf
    return LinearAnswer(found, bound, False)


def _whole(value: float) -> int:
    assert value == int(value)
    return int(value)
