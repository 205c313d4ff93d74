"""Atomic transfers, time-indexed: starts on a grid of instants, solved by OR-Tools' CP-SAT.

No interval, no cumulative constraint: literals "has started by", at-most-one constraints on the
link, conditional sums for memory, and an order for every pair of transfers
(`offcert.formulations.models.time_indexed_model`). It shares with `time_indexed_milp` the windows,
not how a problem is stated. Exact on every grid: the coarser it is, the more is left to what is
added when a solution breaks it.
"""

from __future__ import annotations

import math
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from offcert.formulations.common.cpsat import CP_SAT, run_cpsat, solver_with
from offcert.formulations.common.outcome import ModelOutcome, ModelRun, rough_plans
from offcert.formulations.common.time_grid import TimeGrid, exact_grid_of, require_coarse_enough
from offcert.formulations.models.interval_data import Instant
from offcert.formulations.models.time_indexed_model import TickModel
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

Literal = Any


class Moments:
    """Literals "has left by" and "is not back by" the starts and ends of operations.

    Parameters
    ----------
    model : TickModel
        Receives them, and the conditions on them.
    duplex : bool
        Whether the directions of the link are independent.
    """

    def __init__(self, model: TickModel, duplex: bool) -> None:
        self.ticks, self.data, self.model = model, model.data, model.model
        self.moments = [
            Instant(o, at_end)
            for o, amount in enumerate(self.data.required)
            for at_end in ((False, True) if self.data.operations[o].length > 0 else (False,))
            if amount > 0
        ]
        self.left: dict[tuple[int, Instant], Literal] = {}
        self.stays: dict[tuple[int, Instant], Literal] = {}
        for moment in self.moments:
            self._add_memory(moment)
        self._add_growth()
        for moment in self.moments:
            if not moment.at_end:
                self._add_departures(moment, duplex)
            if moment.at_end or self.data.operations[moment.operation].length == 0:
                self._add_returns(moment, duplex)

    def _add_memory(self, moment: Instant) -> None:
        """As much is absent at a moment as the operation requires.

        What has not left by a moment comes back after it, so of an evicted gap at least one
        literal holds, and both do exactly if it is absent.
        """
        start = self.ticks.operations[moment.operation]
        length = start.item.length
        # The last tick by which it has left, and the first at which it may be claimed. A prefetch
        # that starts with an operation is seen by it unless the operation lasts no time.
        released = start.tick + (length - 1 if moment.at_end else 0)
        claimed = start.tick + (length if moment.at_end else min(length, 1))
        absent = []
        for index in self.data.over[moment.operation]:
            gap, back = self.data.gaps[index], self.ticks.prefetches[index]
            left, stays = self.model.new_bool_var(""), self.model.new_bool_var("")
            self.model.add_implication(left, back.happens)
            self.model.add_implication(stays, back.happens)
            out = self.ticks.offloads[gap.tensor]
            self.model.add(out.end <= released).only_enforce_if(left)
            self.model.add(back.tick >= claimed).only_enforce_if(stays)
            self.model.add_bool_or([left, stays, ~back.happens])
            self.left[index, moment], self.stays[index, moment] = left, stays
            absent.append(gap.size * (left + stays - back.happens))
        self.model.add(sum(absent) >= self.data.required[moment.operation])

    def _add_growth(self) -> None:
        """Add rows: a gap that has left by a moment has left by the next; so do those not back."""
        for index in range(len(self.data.gaps)):
            seen = [moment for moment in self.moments if (index, moment) in self.left]
            for one, two in pairwise(seen):
                self.model.add_implication(self.left[index, one], self.left[index, two])
                self.model.add_implication(self.stays[index, two], self.stays[index, one])

    # Energy

    def _add_departures(self, moment: Instant, duplex: bool) -> None:
        """Add rows: a tensor written after a moment that has left by another left in between."""
        data, o = self.data, moment.operation
        over = data.over[o]
        for writer in sorted({data.gaps[index].writer for index in over}):
            opens = self.ticks.operations[writer].end if writer >= 0 else 0
            terms = [
                data.offloads[data.gaps[index].tensor].length * self.left[index, moment]
                for index in over
                if data.gaps[index].writer >= writer
            ]
            terms += self._whole(writer, o, out=True, back=not duplex)
            self.model.add(sum(terms) <= self.ticks.operations[o].tick - opens)

    def _add_returns(self, moment: Instant, duplex: bool) -> None:
        """Add rows: a tensor not back by a moment that is used at another returns in between."""
        data, o = self.data, moment.operation
        over = data.over[o]
        for after in sorted({data.gaps[index].after for index in over}):
            terms = [
                data.gaps[index].prefetch.length * self.stays[index, moment]
                for index in over
                if data.gaps[index].after <= after
            ]
            terms += self._whole(o, after, out=not duplex, back=True)
            closes = self.ticks.operations[after].tick
            self.model.add(sum(terms) <= closes - self.ticks.operations[o].end)

    def _whole(self, opens: int, closes: int, *, out: bool, back: bool) -> list[Any]:
        """Return the ticks of the transfers of gaps that lie between two operations as a whole.

        Of tensors with one gap only: another gap's offload may have come before.
        """
        data = self.data
        return [
            (out * data.offloads[gap.tensor].length + back * gap.prefetch.length)
            * self.ticks.prefetches[index].happens
            for index, gap in enumerate(data.gaps)
            if gap.writer >= opens and gap.after <= closes and gap.single
        ]


# Instants at which link and memory are looked at by default: more take longer than they are worth.
# Measured; no record.
_INSTANTS = 8
# Literals of the largest model: more takes too long to hand to the solver. Assumed.
_LARGEST = 1_000_000
# How far the solver's integer bound may be off, as it reports a float. Assumed.
_MARGIN = 1e-6


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
        A problem with any trace and link.
    time_limit : float
        Seconds, building the model included.
    threads, seed : int
        For the solver.
    grid : int, optional
        Ticks from one instant at which link and memory are looked at to the next; by default there
        are eight of these.
    upper_bound : int, optional
        Ticks; longer schedules are of no interest. The closer to the optimum, the smaller the
        model.
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
    if run.feasible and not run.finished:
        with run.kept():
            data = exact_grid_of(run)
            if data is not None:
                _Ticks(run, data, grid).search(time_limit, threads, seed)
    return run.outcome()


class _Ticks:
    """The model of a run, and the solver."""

    def __init__(self, run: ModelRun, data: TimeGrid, grid: int | None) -> None:
        self.run, self.data = run, data
        if grid is None:
            step = -(-data.cells // _INSTANTS)
        else:
            step = max(1, grid // data.grid)
            require_coarse_enough(data, _LARGEST, step)
        instants = range(step - 1, data.cells, step)
        run.statistics |= {"grid": step * data.grid, "instants": len(instants)}
        duplex = run.problem.platform.duplex
        self.model = TickModel(data, duplex, instants)
        Moments(self.model, duplex)

    def search(self, time_limit: float, threads: int, seed: int) -> None:
        """Run the solver and take over its answer, until a solution breaks no rule."""
        run = self.run
        solver = solver_with(threads, seed)
        for rounds in range(len(self.data.gaps) + 1):
            run.statistics |= {"literals": len(self.model.model.proto.variables), "rounds": rounds}
            remaining = time_limit - run.elapsed
            if remaining <= 0:
                run.statistics.setdefault("solver_status", "not started: no time left")
                return
            end = run_cpsat(
                solver,
                self.model.model,
                remaining,
                on_bound=self._take_start,
                stop=lambda: run.finished,
            )
            run.interrupted = end.interrupted
            run.statistics["solver_status"] = solver.status_name(end.status)
            if end.status == cp_model.MODEL_INVALID:
                run.error = self.model.model.validate()
            elif end.status == cp_model.INFEASIBLE:
                run.nothing_within()
            else:
                self._take_start(solver.best_objective_bound)
            if end.status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                return
            if self._take_solution(solver) or run.finished or end.interrupted:
                return

    def _take_start(self, bound: float) -> None:
        """Take a bound on the start of the last operation."""
        if math.isfinite(bound):
            last = self.run.problem.trace.durations[-1]
            start = math.ceil(bound - _MARGIN)
            self.run.take_bound(self.data.bound(start, last), margin=0.0)

    def _take_solution(self, solver: cp_model.CpSolver) -> bool:
        """Take a solution's schedule; if memory breaks it, look there from now on.

        Returns whether it was one.
        """
        run, trace = self.run, self.run.problem.trace
        found = self.model.schedule(solver.value)
        broken = self.model.claims_too_much(found)
        if not broken:
            run.take_plans([found.plan(trace)], exact=True)
            return True
        run.take_plans(rough_plans(trace, found), exact=False)
        for index in broken:
            self.model.add_claim(index)
        if run.best is not None and run.best.makespan <= run.upper:
            run.upper = run.best.makespan - 1
            last = (run.upper - trace.durations[-1]) // self.data.grid
            self.model.model.add(self.model.operations[-1].tick <= last)
        return False
