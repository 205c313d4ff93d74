"""Recomputation without offloading, by retention intervals: OR-Tools' CP-SAT.

The model describes every execution in which no computation runs more often than so many times, in
any order, with any copies kept, several of a value at a time included. It is exact for those. What
it says of all executions follows from the time that the others take: one in which a computation
runs once more than the model allows lasts at least as long as all first runs and these.

The idea of intervals over which a value is retained, for CP-SAT, is that of Bartan, Li, Teague,
Chowdhury, Gharachorloo (MOCCASIN, 2023); there runs take place in stages, once a stage and in the
network's order, which can cost time (docs/theory/rematerialisation.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from offcert.core.execution import Execution
from offcert.formulations.common.cpsat import bound_by, solver_with
from offcert.formulations.common.outcome import CP_SAT
from offcert.formulations.rematerialisation.outcome import (
    RematerialisationOutcome,
    RematerialisationRun,
)
from offcert.formulations.rematerialisation.retention_model import RetentionModel
from offcert.formulations.rematerialisation.states import StateNetwork, state_network
from offcert.questions.schedule.problem import Problem

# How far the solver's integer bound may be off, as it reports a float. Assumed.
_MARGIN = 1e-6


def solve(
    problem: Problem,
    *,
    runs: int = 3,
    time_limit: float = 60.0,
    workers: int = 1,
    seed: int = 0,
    hint: Execution | None = None,
    lower_bound: int = 0,
) -> RematerialisationOutcome:
    """Find the best execution, or how good one can be.

    Parameters
    ----------
    problem : Problem
        With ``recompute="any"`` and ``offload=False``; time or memory to minimise.
    runs : int
        How often a computation may run, at least 1.
    time_limit : float
        Seconds, building the model included.
    workers, seed : int
        For the solver.
    hint : Execution, optional
        A legal one. It is returned if nothing better is found; the less it recomputes, the fewer
        runs has the model. A computation may run as often as it does there.
    lower_bound : int
        Ticks or bytes; a bound already proved elsewhere.

    Returns
    -------
    RematerialisationOutcome
        Also when the time runs out, the solver fails or the user interrupts. ``within`` is the
        least objective with so many runs; ``claim`` holds for any number of runs, if the time that
        more of them take allows to say so: where memory is minimised that needs a deadline.

    Raises
    ------
    MethodError
        If the problem is not one of recomputation alone.
    """
    run = _RetentionRun(
        problem,
        hint,
        lower_bound,
        solver=CP_SAT,
        time_limit=time_limit,
        workers=workers,
        seed=seed,
        runs=runs,
        # The solver is given this bound, so what it proves may rest on it.
        given_lower_bound=lower_bound,
    )
    if run.feasible and not run.finished:
        with run.kept():
            run.build(max(1, runs), hint)
            run.search(time_limit, workers, seed)
    return run.outcome()


def run_limits(states: StateNetwork, runs: int, spare: int | None) -> list[int]:
    """Return how often each computation may run: no more often than is of use and affordable.

    That is at most `runs` times; all runs beside the first ones take at most `spare` ticks, if any.
    """
    limits = []
    for step in states.steps:
        most = runs if step.repeatable else 1
        if spare is not None and step.duration:
            most = min(most, 1 + max(0, spare) // step.duration)
        limits.append(most)
    return limits


def least_beyond(states: StateNetwork, limits: list[int]) -> int | None:
    """Return the least ticks of an execution with more runs than that; None if there is none."""
    compute = sum(step.duration for step in states.steps)
    return min(
        (
            compute + limit * step.duration
            for step, limit in zip(states.steps, limits, strict=True)
            if step.repeatable
        ),
        default=None,
    )


class _RetentionRun(RematerialisationRun):
    """One call of `solve`: the model and the solver."""

    def build(self, runs: int, hint: Execution | None) -> None:
        """Build the model, with the hint and the bounds known so far."""
        self.statistics["solver"] += f" {version('ortools')}"
        self.states = state_network(self.network)
        self.limits = run_limits(self.states, runs, self.spare)
        if hint is not None:
            for index in set(hint.runs):
                self.limits[index] = max(self.limits[index], hint.runs.count(index))
        self.beyond = least_beyond(self.states, self.limits)
        memory, time = self.memory, self.problem.deadline
        if self.objective is not None and self.least_bytes:
            memory = min(memory, self.objective - 1)
        elif self.objective is not None:
            time = self.objective - 1
        self.upper = memory if self.least_bytes else time
        self.model = RetentionModel(self.states, self.limits, memory, time, self.least_bytes)
        if hint is not None:
            self.model.hint(hint)
        self.statistics |= {
            "places": self.model.places,
            "readings": len(self.model.readings),
            "build_seconds": round(self.elapsed, 3),
        }

    def search(self, time_limit: float, workers: int, seed: int) -> None:
        """Run the solver, and take over its answer."""
        solver = solver_with(workers, seed)
        bound = bound_by(
            self,
            solver,
            self.model.model,
            time_limit,
            on_solution=self._take_solution,
            stop=lambda: self.finished,
        )
        if bound is not None:
            self._take_solver_bound(bound)

    def _take_solver_bound(self, bound: float) -> None:
        """Take a bound on the executions that the model describes for what it says of all."""
        if math.isnan(bound) or (bound == -math.inf and not self.finished):
            return
        # Nothing beyond what was asked for is known; what was known before reaches that.
        value = bound if self.upper is None else min(bound, self.upper + 1)
        if value == math.inf:
            self.statistics["within"] = "nothing"
        elif self.objective is not None and (
            self.finished or math.ceil(value - _MARGIN) >= self.objective
        ):
            # Whoever has reached a bound on all executions ends the solver before it knows.
            self.within = self.objective
        if self.least_bytes:
            deadline = self.problem.deadline
            beyond = self.beyond is None or (deadline is not None and self.beyond > deadline)
            if not beyond:
                return
        elif self.beyond is not None:
            value = min(value, self.beyond)
        self.take_bound(value, _MARGIN)

    def _take_solution(self, value: Callable[[Any], int]) -> None:
        self.take(self.model.execution(value))
