"""Offloading and addresses at once, exactly, on small problems: solved by OR-Tools' CP-SAT.

A schedule within a memory limit need not have addresses in a pool of that size. The least time of
one that has, against the least time of any, is what fragmentation costs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.platform import Kind
from offcert.formulations.common.cpsat import run_cpsat, solver_with
from offcert.questions.placement.problem import Placement
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from papers.fragmentation.placed_model import PlacedModel

# The solver reports an integer bound as a float.
_MARGIN = 1e-6


@dataclass(frozen=True)
class PlacedOutcome:
    """The solver's answer.

    Attributes
    ----------
    schedule : Schedule or None
        The shortest that was found; valid by the checker.
    placement : Placement or None
        Its addresses, in the order of `offcert.questions.schedule.residences`, if they were asked
        for.
    lower_bound : int
        Ticks that no such schedule falls below, on the solver's word.
    infeasible : bool
        Whether there is no such schedule at all, on the solver's word.
    """

    schedule: Schedule | None
    placement: Placement | None
    lower_bound: int
    infeasible: bool = False

    @property
    def makespan(self) -> int | None:
        """Ticks of the schedule."""
        return None if self.schedule is None else self.schedule.makespan

    @property
    def closed(self) -> bool:
        """Whether the least time is known, or that there is none."""
        return self.infeasible or self.makespan == self.lower_bound


def solve_placed(
    problem: Problem,
    *,
    addresses: bool = True,
    time_limit: float = 60.0,
    workers: int = 1,
    seed: int = 0,
    lower_bound: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> PlacedOutcome:
    """Find the shortest schedule of which everything has an address in a pool of the memory's size.

    Parameters
    ----------
    problem : Problem
        Small: every tick and byte counts. With atomic transfers.
    addresses : bool
        Whether addresses are needed; otherwise it is the atomic problem.
    time_limit : float
        Seconds.
    workers, seed : int
        For the solver.
    lower_bound : int
        Ticks; one already known. What the solver claims may rest on it.
    stop : callable
        Asked several times a second whether to stop early.
    """
    deadline = time.monotonic() + time_limit
    run = _Run(PlacedModel(problem, longest(problem), addresses), addresses, lower_bound)
    if lower_bound:
        run.model.model.add(run.model.end(len(problem.trace) - 1) >= lower_bound)
    solver = solver_with(workers, seed)
    seconds = max(0.1, deadline - time.monotonic())
    end = run_cpsat(
        solver, run.model.model, seconds, on_solution=run.take, on_bound=run.take_bound, stop=stop
    )
    if end.interrupted:
        raise KeyboardInterrupt
    if end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        run.take_bound(solver.best_objective_bound)
    elif end.status != cp_model.INFEASIBLE:
        raise RuntimeError(run.model.model.validate() or "the model was not accepted")
    infeasible = end.status == cp_model.INFEASIBLE
    return PlacedOutcome(run.schedule, run.placement, run.lower_bound, infeasible)


def longest(problem: Problem) -> int:
    """Return the ticks of computing everything and moving everything, one after the other.

    No shortest schedule lasts longer: a tick in which nothing runs and nothing moves can be cut
    out. That changes the order of no two events, so addresses stay right as well.
    """
    trace, ticks = problem.trace, problem.platform.transfer_time
    moved = {gap.tensor for gap in trace.gaps}
    out = sum(ticks(trace.tensors[tensor].size, Kind.OFFLOAD) for tensor in moved)
    back = sum(ticks(size, Kind.PREFETCH) for size in trace.gap_sizes)
    return trace.compute_time + out + back


class _Run:
    """The best that the solver has found."""

    def __init__(self, model: PlacedModel, addresses: bool, lower_bound: int) -> None:
        self.model = model
        self.schedule: Schedule | None = None
        self.placement: Placement | None = None
        self.lower_bound = max(lower_bound, model.trace.compute_time)
        self._addresses = addresses

    def take(self, value: Callable[[Any], int]) -> None:
        """Take a solution."""
        schedule = self.model.schedule(value)
        if self.schedule is not None and schedule.makespan >= self.schedule.makespan:
            return
        faults = check(self.model.problem, schedule)
        if faults:
            raise RuntimeError(f"the model has an invalid schedule: {faults[0]}")
        placement = Placement(self.model.addresses(value)) if self._addresses else None
        self.schedule, self.placement = schedule, placement

    def take_bound(self, bound: float) -> None:
        """Take over the solver's bound on the objective."""
        if math.isfinite(bound):
            self.lower_bound = max(self.lower_bound, math.ceil(bound - _MARGIN))
