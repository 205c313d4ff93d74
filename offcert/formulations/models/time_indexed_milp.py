"""Atomic transfers, time-indexed: a mixed-integer linear program over starts in cells of a grid.

The classic model of scheduling on a machine, with windows per item, and beside it the stage model
(`stage_milp`), tied to it by the ticks at which operations start: what cells round away the stages
still see. Exact on a simplex link on any grid, on a duplex link where cells divide every duration;
elsewhere its bound is sound (`offcert.formulations.common.grid` proves it for the cells) and its
decisions are re-simulated at full resolution. Solved by any solver that PuLP knows, or by the HiGHS
in SciPy.

Variables are running sums of the start binaries, "item i has started by cell τ". Written ``S`` for
operations, ``Z`` for offloads (their last one: "the tensor moves") and ``Y`` for prefetches ("the
gap is evicted"). The amount absent in a cell is a sum of sizes times ``Z[τ - length] - Y[τ]``.
"""

from __future__ import annotations

import math

from offcert.formulations.common.linear_model import (
    ONE,
    ROUNDING,
    LinearModel,
    Terms,
    scaled,
    value_of,
)
from offcert.formulations.common.linear_solvers import SCIPY, require_solver, run_model
from offcert.formulations.common.outcome import ModelOutcome, ModelRun
from offcert.formulations.common.time_grid import (
    GridGap,
    StartWindow,
    TimeGrid,
    build_grid,
    cells_to_order,
    grid_of,
)
from offcert.formulations.models.stage_instants import plan_of
from offcert.formulations.models.stage_milp import RELATIVE_MARGIN, StageModel
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Pairs of an item and a cell for which a grid is chosen by default, on simplex and on duplex links.
# On a simplex link the stages make the program exact, and cells only strengthen it; on a duplex
# link it is exact if cells are. Arbitrary.
_VARIABLES, _DUPLEX_VARIABLES = 150, 6000
# Variables of the largest model: more takes too long to hand to a solver. Assumed.
_LARGEST = 300_000
# A binary may be off by 1e-6, in each of a window's cells; as much again as for the stages.
_RELATIVE_MARGIN = 2 * RELATIVE_MARGIN


def solve(
    problem: Problem,
    *,
    solver: str = SCIPY,
    time_limit: float = 60.0,
    threads: int = 1,
    grid: int | None = None,
    upper_bound: int | None = None,
    hint: Schedule | None = None,
    lower_bound: int = 0,
) -> ModelOutcome:
    """Solve a problem with atomic transfers, or find out how good its best schedule can be.

    Parameters
    ----------
    problem : Problem
        A problem with any trace and link.
    solver : str
        A name that PuLP knows, or ``"scipy"``.
    time_limit : float
        Seconds, building the program included.
    threads : int
        Threads of the solver.
    grid : int, optional
        Ticks a cell; by default few cells on a simplex link, and as many on a duplex one as a
        program of moderate size allows.
    upper_bound : int, optional
        Ticks; longer schedules are of no interest. The closer to the optimum, the smaller the
        program.
    hint : Schedule, optional
        A valid schedule; it is returned if nothing better is found. Only shorter ones are looked
        for, unless the windows alone leave none.
    lower_bound : int
        Ticks; a bound already proved elsewhere.

    Returns
    -------
    ModelOutcome
        Also when the time runs out, the solver fails or the user interrupts.

    Raises
    ------
    InputError
        If the solver is unknown or not available, or `grid` is less than 1 or far too fine.
    """
    require_solver(solver)
    run = ModelRun(problem, upper_bound, hint, lower_bound, solver=solver, time_limit=time_limit)
    with run.kept():
        if run.feasible and not run.finished:
            _search(run, grid, solver, time_limit, threads)
    return run.outcome()


def _search(run: ModelRun, grid: int | None, solver: str, time_limit: float, threads: int) -> None:
    """Build the program, run the solver and take over its answer, while schedules get better."""
    problem, trace = run.problem, run.problem.trace
    duplex, best = problem.platform.duplex, run.best
    while True:
        model = _program(run, grid)
        if model is None:
            return
        data, stages = model.data, model.stages
        answer = run_model(run, model.model, solver, time_limit, threads)
        margin = _RELATIVE_MARGIN * run.upper
        run.statistics["margin"] = margin
        run.take_bound(answer.bound * stages.axis.unit + trace.durations[-1], margin)
        if answer.values is None:
            return
        plans = data.plans(trace, *model.decisions(answer.values))
        ordered = plan_of(problem, stages.axis, stages.transfers, answer.values)
        # On a duplex link the stages are no schedule, but cells that round nothing are.
        plans = [*plans, ordered] if duplex else [ordered, *plans]
        run.take_plans(plans, exact=not duplex or data.exact)
        if run.finished or run.best is best or time_limit <= run.elapsed:
            return
        best = run.best


def _program(run: ModelRun, grid: int | None) -> TimeIndexedModel | None:
    """Return the program, or None if there is no schedule for it; the run then knows that.

    For schedules shorter than the best one. If windows as narrow as that refute them without a
    solver, it has those of the best schedule, and is asked for a shorter one all the same: what it
    claims is to be its own.
    """
    problem, limits = run.problem, [run.upper]
    if run.best is not None and run.best.makespan <= run.upper:
        limits.insert(0, run.best.makespan - 1)
    for limit in limits:
        run.upper = limit
        windows = build_grid(problem, 1, limit)
        if windows is None:
            continue
        usual = _DUPLEX_VARIABLES if problem.platform.duplex else _VARIABLES
        data = grid_of(run, grid, usual, _LARGEST)
        assert data is not None
        model = TimeIndexedModel(data, windows, problem.platform.duplex, limit)
        if not model.model.contradictory:
            run.upper = limits[0]
            model.end_by(run.upper - problem.trace.durations[-1])
            return model
    run.nothing_within()
    return None


class TimeIndexedModel:
    """Columns and rows for one problem on one grid.

    Parameters
    ----------
    data : TimeGrid
        The problem on its grid.
    windows : TimeGrid
        The problem on a grid of one tick.
    duplex : bool
        Whether the directions of the link are independent.
    upper : int
        Ticks; what times are scaled by.
    """

    # Part of a row that solvers' tolerances may hide, and whether columns for absence are integers.
    slack, whole = ROUNDING, False

    def __init__(self, data: TimeGrid, windows: TimeGrid, duplex: bool, upper: int) -> None:
        self.data = data
        self.stages = StageModel(windows, duplex, True, upper)
        self._add_cells(self.stages.model, duplex)
        self._add_ticks()

    def _add_cells(self, model: LinearModel, duplex: bool) -> None:
        """Add columns and rows of what happens in which cell."""
        data, self.model = self.data, model
        self.operations = [self._running_sum(item, certain=True) for item in data.operations]
        self.offloads = {
            tensor: self._running_sum(item, certain=False) for tensor, item in data.offloads.items()
        }
        self.prefetches = [self._running_sum(gap.prefetch, certain=False) for gap in data.gaps]
        self._absent: dict[tuple[int, int, int], Terms] = {}
        self._add_order()
        for index, gap in enumerate(data.gaps):
            self._add_eviction(index, gap)
        self._add_link(duplex)
        self._add_memory()
        for o, item in enumerate(data.operations):
            if item.length == 0 and data.required[o] > 0:
                self._add_moment(o, item)

    def _running_sum(self, item: StartWindow, certain: bool) -> list[Terms]:
        """Return, for each cell of the window, "the item has started by it"."""
        steps: list[Terms] = []
        for cell in range(item.first, item.last + 1):
            if certain and cell == item.last:
                steps.append([(ONE, 1.0)])
            else:
                steps.append([(self.model.column(0.0, 1.0, integer=True), 1.0)])
            if len(steps) > 1:
                self.model.at_most(steps[-2], steps[-1])
        return steps

    # "Has started by a cell", whatever the window

    def started(self, o: int, cell: int) -> Terms:
        """Return whether operation o has started by a cell; -1 started before time."""
        if o < 0:
            return [(ONE, 1.0)]
        return _at(self.operations[o], self.data.operations[o], cell)

    def ended(self, o: int, cell: int) -> Terms:
        """Return whether operation o has ended by a cell."""
        if o < 0:
            return [(ONE, 1.0)]
        return self.started(o, cell - self.data.operations[o].length)

    def copied(self, tensor: int, cell: int) -> Terms:
        """Return whether a tensor's offload has ended by a cell."""
        item = self.data.offloads[tensor]
        return _at(self.offloads[tensor], item, cell - item.length)

    def fetched(self, index: int, cell: int) -> Terms:
        """Return whether a gap's prefetch has started by a cell."""
        return _at(self.prefetches[index], self.data.gaps[index].prefetch, cell)

    def evicted(self, index: int) -> Terms:
        """Return whether a gap is evicted."""
        return self.prefetches[index][-1]

    # Rows

    def _add_ticks(self) -> None:
        """An operation starts, in ticks, within the cell in which it starts.

        Its cell is the last of its window, less one for each cell by which it has started.
        """
        cell = self.data.grid / self.stages.axis.unit
        rest = (self.data.grid - 1) / self.stages.axis.unit
        starts = zip(
            self.stages.axis.operations, self.operations, self.data.operations, strict=True
        )
        for tick, steps, item in starts:
            passed = [term for step in steps[:-1] for term in scaled(step, cell)]
            into = [*tick, *passed, (ONE, -item.last * cell)]
            self.model.row(into, -ROUNDING, rest + ROUNDING)

    def _add_order(self) -> None:
        """Operations follow each other, and offloads the writers of their tensors."""
        items = self.data.operations
        for o in range(1, len(items)):
            for cell in cells_to_order(items[o - 1], items[o]):
                self.model.at_most(self.started(o, cell), self.ended(o - 1, cell))
        for a, b, distance in self.data.distances:
            for cell in range(items[b].first, items[b].last + 1):
                self.model.at_most(self.started(b, cell), self.started(a, cell - distance))

    def _add_eviction(self, index: int, gap: GridGap) -> None:
        """A tensor leaves once written; a prefetch lies between the release and the next use."""
        model, tensor = self.model, gap.tensor
        leaves = self.data.offloads[tensor]
        if gap.writer >= 0:
            for cell in cells_to_order(self.data.operations[gap.writer], leaves):
                model.at_most(
                    _at(self.offloads[tensor], leaves, cell), self.ended(gap.writer, cell)
                )
        if gap.single:
            # A copy that nobody fetches would make room for nothing.
            model.at_most(self.offloads[tensor][-1], self.evicted(index))
        for cell in range(gap.prefetch.first, gap.prefetch.last + 1):
            model.at_most(self.fetched(index, cell), self.copied(tensor, cell))
            if not gap.alone:
                model.at_most(self.fetched(index, cell), self.ended(gap.before, cell))
        reader = self.data.operations[gap.after]
        for cell in range(reader.first, reader.last + 1):
            missing = [
                *self.evicted(index),
                *scaled(self.fetched(index, cell - gap.prefetch.length), -1.0),
            ]
            model.row([*self.started(gap.after, cell), *missing], -math.inf, 1.0)

    def _add_link(self, duplex: bool) -> None:
        """One transfer at a time, or one in each direction; what overlaps does so at a start."""
        outward = [(self.offloads[tensor], item) for tensor, item in self.data.offloads.items()]
        inward = [
            (steps, gap.prefetch)
            for steps, gap in zip(self.prefetches, self.data.gaps, strict=True)
        ]
        for queue in [outward, inward] if duplex else [outward + inward]:
            for cell in sorted({c for _, i in queue for c in range(i.first, i.last + 1)}):
                busy = [
                    term
                    for steps, item in queue
                    for term in (
                        *_at(steps, item, cell),
                        *scaled(_at(steps, item, cell - item.length), -1.0),
                    )
                ]
                self.model.row(busy, -math.inf, 1.0)

    def _absence(self, index: int, released: int, back: int) -> Terms:
        """Return whether a gap is evicted, released by one cell and not fetched by another."""
        gap = self.data.gaps[index]
        copied, fetched = self.copied(gap.tensor, released), self.fetched(index, back)
        if gap.alone or not copied:
            return [*copied, *scaled(fetched, -1.0)]
        key = (index, released, back)
        if key not in self._absent:
            absent: Terms = [(self.model.column(0.0, 1.0, integer=self.whole), 1.0)]
            both = [*absent, *fetched]
            self.model.at_most(both, copied)
            self.model.at_most(both, self.ended(gap.before, released))
            if not gap.single:
                self.model.at_most(both, self.evicted(index))
            self._absent[key] = absent
        return self._absent[key]

    def _add_memory(self) -> None:
        """In every cell as much is absent as the operation that runs, or the idle time, requires.

        One row a cell: exactly one operation, or the idle time before one, has the cell.
        """
        data = self.data
        most = max(*data.required, *data.idle_required)
        largest = self._scale(most)
        for cell in range(data.cells if most > 0 else 0):
            needs: Terms = []
            for o, (run, idle) in enumerate(zip(data.required, data.idle_required, strict=True)):
                begun, over = self.started(o, cell), self.ended(o, cell)
                needs += [*scaled(begun, -run / largest), *scaled(over, run / largest)]
                before = self.ended(o - 1, cell)
                needs += [*scaled(before, -idle / largest), *scaled(begun, idle / largest)]
            if any(value < 0.0 for _, value in needs):
                terms = list(needs)
                for index, gap in enumerate(data.gaps):
                    terms += scaled(self._absence(index, cell, cell), gap.size / largest)
                self.model.row(terms, -self.slack)

    def _add_moment(self, o: int, item: StartWindow) -> None:
        """An operation that lasts no cell requires its absence when it starts."""
        required = self.data.required[o]
        largest = self._scale(required)
        for cell in range(item.first, item.last + 1):
            terms = scaled(self.started(o, cell - 1), required / largest)
            terms += scaled(self.started(o, cell), -required / largest)
            for index in self.data.over[o]:
                share = self.data.gaps[index].size / largest
                terms += scaled(self._absence(index, cell, cell - 1), share)
            self.model.row(terms, -self.slack)

    def _scale(self, amount: int) -> int:
        """Return the unit in which memory is counted, so that coefficients are near 1."""
        return amount

    def end_by(self, tick: int) -> None:
        """Let the last operation start at a tick at the latest."""
        axis = self.stages.axis
        self.model.row(axis.operations[-1], -math.inf, tick / axis.unit + ROUNDING)

    # Solutions

    def decisions(self, values: list[float]) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """Return the cells of operations, of offloads by tensor and of prefetches by gap index."""

        def starts_in(steps: list[Terms], item: StartWindow) -> int | None:
            by = (c for c, terms in enumerate(steps) if value_of(terms, values) > 0.5)
            step = next(by, None)
            return None if step is None else item.first + step

        data = self.data
        operations = [
            starts_in(s, i) for s, i in zip(self.operations, data.operations, strict=True)
        ]
        offloads = {t: starts_in(self.offloads[t], item) for t, item in data.offloads.items()}
        prefetches = {
            index: starts_in(self.prefetches[index], gap.prefetch)
            for index, gap in enumerate(data.gaps)
        }
        return (
            [start for start in operations if start is not None],
            {tensor: start for tensor, start in offloads.items() if start is not None},
            {index: start for index, start in prefetches.items() if start is not None},
        )


def _at(steps: list[Terms], item: StartWindow, cell: int) -> Terms:
    """Return whether an item has started by a cell, given its running sums over its window."""
    if cell < item.first:
        return []
    return steps[min(cell, item.last) - item.first]
