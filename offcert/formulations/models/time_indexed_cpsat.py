"""Atomic transfers, time-indexed: start literals in cells of a grid, solved by OR-Tools' CP-SAT.

No interval, no cumulative constraint: clauses, at-most-one constraints on the link and one
conditional knapsack per operation and cell. It shares with `time_indexed_milp` what a problem is on
a grid (`offcert.formulations.common.time_grid`), not how it is stated. Exact on a grid of one tick.
"""

from __future__ import annotations

import math
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.formulations.common.cpsat import CP_SAT, run_cpsat
from offcert.formulations.common.outcome import ModelOutcome, ModelRun
from offcert.formulations.common.time_grid import (
    GridGap,
    StartWindow,
    TimeGrid,
    cells_to_order,
    grid_of,
)

# Pairs of an item and a cell for which a grid is chosen by default.
_VARIABLES = 20_000
# More than this takes too long to hand to the solver, let alone to solve.
_LARGEST = 1_000_000
# The solver reports an integer bound as a float.
_MARGIN = 1e-6

# A literal; the solver does not export its type.
Literal = Any


def solve(
    problem: Problem,
    *,
    time_limit: float = 60.0,
    threads: int = 1,
    seed: int = 0,
    grid: int | None = None,
    upper_bound: int | None = None,
    hint: Schedule | None = None,
    lower_bound: int = 0,
) -> ModelOutcome:
    """Solve a problem with atomic transfers, or find out how good its best schedule can be.

    Parameters
    ----------
    problem : Problem
        Any trace and link.
    time_limit : float
        Seconds, building the model included.
    threads, seed : int
        For the solver.
    grid : int, optional
        Ticks a cell; by default as fine as a model of moderate size allows.
    upper_bound : int, optional
        Ticks; longer schedules are of no interest. The closer to the optimum, the smaller the
        model.
    hint : Schedule, optional
        A valid schedule; it is returned if nothing better is found.
    lower_bound : int
        Ticks; a bound already proved elsewhere.

    Returns
    -------
    ModelOutcome
        Also when the time runs out, the solver fails or the user interrupts.

    Raises
    ------
    InputError
        If `grid` is less than 1 or far too fine.
    """
    run = ModelRun(
        problem,
        upper_bound,
        hint,
        lower_bound,
        solver=CP_SAT,
        version=version("ortools"),
        time_limit=time_limit,
        threads=threads,
        seed=seed,
    )
    with run.kept():
        data = grid_of(run, grid, _VARIABLES, _LARGEST) if run.feasible else None
        if data is not None:
            _search(run, data, time_limit, threads, seed)
    return run.outcome()


def _search(run: ModelRun, data: TimeGrid, time_limit: float, threads: int, seed: int) -> None:
    """Build the model, run the solver and take what it says."""
    trace = run.problem.trace
    model = StartLiterals(data, run.problem.platform.duplex)
    run.statistics["literals"] = len(model.model.proto.variables)
    remaining = time_limit - run.elapsed
    if remaining <= 0:
        run.statistics["solver_status"] = "not started: no time left"
        return
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = threads
    solver.parameters.random_seed = seed
    end = run_cpsat(solver, model.model, remaining)
    status = end.status
    run.interrupted = end.interrupted
    run.statistics["solver_status"] = solver.status_name(status)
    if status == cp_model.MODEL_INVALID:
        run.error = model.model.validate()
    elif status == cp_model.INFEASIBLE:
        run.nothing_within()
    elif math.isfinite(solver.best_objective_bound):
        cells = math.ceil(solver.best_objective_bound - _MARGIN)
        run.take_bound(data.bound(cells, trace.durations[-1]), margin=0.0)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        plans = data.plans(trace, *model.decisions(solver))
        run.take_plans(plans, exact=data.grid == 1)


class StartLiterals:
    """Literals and constraints for one problem on one grid.

    Parameters
    ----------
    data : TimeGrid
        The problem on its grid.
    duplex : bool
        Whether the directions of the link are independent.
    """

    def __init__(self, data: TimeGrid, duplex: bool) -> None:
        self.data = data
        self.model = cp_model.CpModel()
        self.true = self.model.new_constant(1)
        self.operations = [self._steps(item, self.true) for item in data.operations]
        self.offloads = {
            tensor: self._steps(item, self.model.new_bool_var(f"moved{tensor}"))
            for tensor, item in data.offloads.items()
        }
        self.prefetches = [
            self._steps(gap.prefetch, self.model.new_bool_var(f"evicted{gap.number}"))
            for gap in data.gaps
        ]
        self._absent: dict[tuple[int, int, int], Literal] = {}
        self._add_order()
        for index, gap in enumerate(data.gaps):
            self._add_eviction(index, gap)
        self._add_link(duplex)
        for o, item in enumerate(data.operations):
            self._add_memory(o, item)
        # Minimising where the last operation starts: its window's last cell, less one for each
        # cell by which it has started.
        last = data.operations[-1]
        self.model.minimize(last.last - sum(self.operations[-1][:-1]))

    def _steps(self, item: StartWindow, happens: Literal) -> list[Literal]:
        """Return, for each cell of the window, "the item has started by it"; the last: "at all"."""
        steps = [self.model.new_bool_var("") for _ in range(item.first, item.last)] + [happens]
        for before, after in pairwise(steps):
            self.model.add_implication(before, after)
        return steps

    def _start_literals(self, steps: list[Literal], item: StartWindow) -> dict[int, Literal]:
        """Return, for each cell of the window, "the item starts in it"."""
        starts = {item.first: steps[0]}
        for cell in range(item.first + 1, item.last + 1):
            here = self.model.new_bool_var("")
            before, by = steps[cell - item.first - 1], steps[cell - item.first]
            self.model.add(here == by - before)
            starts[cell] = here
        return starts

    # "Has started by a cell", whatever the window

    def _by(self, steps: list[Literal], item: StartWindow, cell: int) -> Literal:
        if cell < item.first:
            return ~self.true
        return steps[min(cell, item.last) - item.first]

    def started(self, o: int, cell: int) -> Literal:
        """Return whether operation o has started by a cell; -1 started before time."""
        if o < 0:
            return self.true
        return self._by(self.operations[o], self.data.operations[o], cell)

    def ended(self, o: int, cell: int) -> Literal:
        """Return whether operation o has ended by a cell."""
        return self.true if o < 0 else self.started(o, cell - self.data.operations[o].length)

    def copied(self, tensor: int, cell: int) -> Literal:
        """Return whether a tensor's offload has ended by a cell."""
        item = self.data.offloads[tensor]
        return self._by(self.offloads[tensor], item, cell - item.length)

    def fetched(self, index: int, cell: int) -> Literal:
        """Return whether a gap's prefetch has started by a cell."""
        return self._by(self.prefetches[index], self.data.gaps[index].prefetch, cell)

    # Constraints

    def _add_order(self) -> None:
        """Operations follow each other."""
        items = self.data.operations
        for o in range(1, len(items)):
            for cell in cells_to_order(items[o - 1], items[o]):
                self.model.add_implication(self.started(o, cell), self.ended(o - 1, cell))
        for a, b, distance in self.data.distances:
            for cell in range(items[b].first, items[b].last + 1):
                self.model.add_implication(self.started(b, cell), self.started(a, cell - distance))

    def _add_eviction(self, index: int, gap: GridGap) -> None:
        """A tensor leaves once written; a prefetch lies between the release and the next use."""
        model, leaves = self.model, self.data.offloads[gap.tensor]
        for cell in range(leaves.first, leaves.last + 1):
            leaving = self._by(self.offloads[gap.tensor], leaves, cell)
            model.add_implication(leaving, self.ended(gap.writer, cell))
        for cell in range(gap.prefetch.first, gap.prefetch.last + 1):
            fetched = self.fetched(index, cell)
            model.add_implication(fetched, self.copied(gap.tensor, cell))
            model.add_implication(fetched, self.ended(gap.before, cell))
        reader = self.data.operations[gap.after]
        evicted = self.prefetches[index][-1]
        for cell in range(reader.first, reader.last + 1):
            returned = self.fetched(index, cell - gap.prefetch.length)
            model.add_bool_or([~self.started(gap.after, cell), ~evicted, returned])

    def _add_link(self, duplex: bool) -> None:
        """At most one of the starts that would occupy a cell of the link."""
        outward = [
            (self._start_literals(self.offloads[tensor], item), item)
            for tensor, item in self.data.offloads.items()
        ]
        inward = [
            (self._start_literals(steps, gap.prefetch), gap.prefetch)
            for steps, gap in zip(self.prefetches, self.data.gaps, strict=True)
        ]
        for queue in [outward, inward] if duplex else [outward + inward]:
            # What overlaps does so in the cell in which one of them starts.
            for cell in sorted({cell for starts, _ in queue for cell in starts}):
                self.model.add_at_most_one(
                    starts[earlier]
                    for starts, item in queue
                    for earlier in range(cell - item.length + 1, cell + 1)
                    if earlier in starts
                )

    def _absence(self, index: int, released: int, back: int) -> Literal:
        """Return a literal that implies: evicted, released by one cell, not fetched by another."""
        key = (index, released, back)
        if key not in self._absent:
            gap = self.data.gaps[index]
            absent = self.model.new_bool_var("")
            self.model.add_implication(absent, self.prefetches[index][-1])
            self.model.add_implication(absent, self.copied(gap.tensor, released))
            self.model.add_implication(absent, self.ended(gap.before, released))
            self.model.add_implication(absent, ~self.fetched(index, back))
            self._absent[key] = absent
        return self._absent[key]

    def _add_memory(self, o: int, item: StartWindow) -> None:
        """While an operation runs, and in the idle time before it, enough is absent."""
        gaps = self.data.gaps
        required, idle = self.data.required[o], self.data.idle_required[o]
        if required > 0:
            # An operation that lasts no cell is looked at when it starts; then a prefetch that
            # starts with it takes its memory after it.
            moment = item.length == 0
            for cell in range(item.first, item.last + max(item.length, 1)):
                gone = self.started(o, cell - 1) if moment else self.ended(o, cell)
                back = cell - 1 if moment else cell
                self.model.add(
                    sum(gaps[i].size * self._absence(i, cell, back) for i in self.data.over[o])
                    >= required
                ).only_enforce_if(self.started(o, cell), ~gone)
        if idle > 0:
            across = [i for i, gap in enumerate(gaps) if gap.before < o <= gap.after]
            before = self.data.operations[o - 1]
            for cell in range(before.first + before.length, item.last):
                self.model.add(
                    sum(gaps[i].size * self._absence(i, cell, cell) for i in across) >= idle
                ).only_enforce_if(self.ended(o - 1, cell), ~self.started(o, cell))

    # Solutions

    def decisions(
        self, solver: cp_model.CpSolver
    ) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """Return the cells of operations, of offloads by tensor and of prefetches by gap index."""

        def start(steps: list[Literal], item: StartWindow) -> int | None:
            if not solver.boolean_value(steps[-1]):
                return None
            return item.last - sum(solver.boolean_value(step) for step in steps[:-1])

        data = self.data
        operations = [start(s, i) for s, i in zip(self.operations, data.operations, strict=True)]
        offloads = {t: start(self.offloads[t], item) for t, item in data.offloads.items()}
        prefetches = {
            index: start(self.prefetches[index], gap.prefetch)
            for index, gap in enumerate(data.gaps)
        }
        return (
            [cell for cell in operations if cell is not None],
            {tensor: cell for tensor, cell in offloads.items() if cell is not None},
            {index: cell for index, cell in prefetches.items() if cell is not None},
        )
