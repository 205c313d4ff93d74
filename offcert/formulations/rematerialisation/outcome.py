"""The outcome of models of recomputation, and the best execution and bound on the way.

Linear programs of recomputation alone share a run with a solver, and the reading of its answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from offcert.core.errors import MethodError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.result import SolveStatus
from offcert.formulations.common.linear_model import LinearAnswer, LinearModel
from offcert.formulations.common.linear_solvers import require_solver, run_model
from offcert.formulations.common.outcome import SolverClaim, SolverOutcome, SolverRun
from offcert.questions.schedule.problem import Minimise, Problem, Recompute


@dataclass(frozen=True)
class RematerialisationOutcome(SolverOutcome):
    """The findings of a model of recomputation and the claims of its solver."""

    status: SolveStatus  # ``OPTIMAL`` only if the objective equals the lower bound.
    execution: Execution | None  # The best one known, the hint included.
    objective: int | None  # Ticks, or bytes where these are minimised.
    # No execution of the problem is better, as far as the solver is right; at least the bound that
    # the model was given.
    lower_bound: int
    # The least objective among the executions that the model describes, if the solver found that.
    # It is no bound on others.
    within: int | None = None
    # The bound on all executions that the solver showed by itself, if it did.
    claim: SolverClaim | None = None


class RematerialisationRun(SolverRun):
    """One run of a model: the best execution and bound so far, whatever happens to the solver.

    The hint is a legal execution; it counts if it keeps to the memory limit, or to the deadline
    where memory is minimised. `lower_bound` (ticks or bytes) is proved elsewhere, and `solver`
    makes the claims.

    Raises
    ------
    MethodError
        If the problem is not one of recomputation alone.
    """

    def __init__(
        self,
        problem: Problem,
        hint: Execution | None,
        lower_bound: int,
        *,
        solver: str,
        **statistics: Any,
    ) -> None:
        self.problem = problem
        self.network = required_network(problem)
        self.least_bytes = problem.minimise is Minimise.MEMORY
        self.best: Execution | None = None
        natural = problem.least_memory if self.least_bytes else self.network.compute_time
        self.lower_bound = max(lower_bound, natural)
        self.claimed: int | None = None
        self.within: int | None = None
        super().__init__(solver=solver, **statistics)
        self._solver = solver
        if self.least_bytes:
            most = problem.deadline
            self.feasible = most is None or self.network.compute_time <= most
        else:
            self.feasible = problem.least_memory <= problem.platform.memory
        if hint is not None:
            self.take(hint)

    @property
    def objective(self) -> int | None:
        """Ticks or bytes of the best execution, or None."""
        return None if self.best is None else self._measured(self.best)[0]

    @property
    def memory(self) -> int:
        """Bytes: the limit, or what is certainly enough where memory is minimised."""
        if self.least_bytes:
            return self.network.trace().peak_memory
        return self.problem.platform.memory

    def _measured(self, execution: Execution) -> tuple[int, int]:
        """Return the measure to minimise, and the other: ticks and bytes, or bytes and ticks."""
        ticks, peak = execution.trace.compute_time, execution.trace.peak_memory
        return (peak, ticks) if self.least_bytes else (ticks, peak)

    @property
    def finished(self) -> bool:
        """Whether the best execution is as good as the bound."""
        return self.objective is not None and self.objective <= self.lower_bound

    @property
    def spare(self) -> int | None:
        """Ticks that runs beside the first ones may take in what is still of interest, or None."""
        if self.least_bytes:
            most = self.problem.deadline
        else:
            most = None if self.objective is None else self.objective - 1
        return None if most is None else most - self.network.compute_time

    def take(self, execution: Execution) -> bool:
        """Keep an execution if it is within the limits and better than the best so far."""
        value, other = self._measured(execution)
        limit: int | None = self.problem.platform.memory
        if self.least_bytes:
            limit = self.problem.deadline
        if limit is not None and other > limit:
            return False
        if self.objective is not None and value >= self.objective:
            return False
        self.best = execution
        return True

    def take_bound(self, value: float, margin: float = 0.0) -> None:
        """Take a solver's bound on all executions, less a margin, rounded up."""
        if math.isfinite(value):
            claimed = math.ceil(value - margin)
            self.claimed = max(claimed, self.claimed or 0)
            self.lower_bound = max(self.lower_bound, claimed)

    def outcome(self) -> RematerialisationOutcome:
        """Return the best execution, the lower bound and the status so far."""
        objective = self.objective
        if objective is not None and self.lower_bound > objective:
            self.error = f"a bound of {self.lower_bound} contradicts an execution of {objective}"
            self.lower_bound, self.claimed = 0, None
        status = SolveStatus.UNKNOWN
        if not self.feasible:
            status = SolveStatus.INFEASIBLE
        elif objective is not None:
            optimal = objective == self.lower_bound
            status = SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE
        claim = None if self.claimed is None else SolverClaim(self.claimed, self._solver)
        return RematerialisationOutcome(
            status, self.best, objective, self.lower_bound, self.within, claim, **self.record
        )


def required_network(problem: Problem) -> Network:
    """Return the network of a problem of recomputation alone.

    Raises
    ------
    MethodError
        If something may leave the device, or not just anything may run again.
    """
    network = problem.computed
    if network is None or problem.recompute is not Recompute.ANY:
        raise MethodError('models of recomputation need a problem with recompute "any"')
    if problem.offload:
        raise MethodError("models of recomputation need a problem in which nothing may leave")
    return network


# How far solvers may be off, as a part of the memory or of the computing time. Their rows hold to
# 1e-6: given by HiGHS, ten times as much to be safe.
RELATIVE_MARGIN = 1e-5


Ask = Callable[[LinearModel], LinearAnswer]


def solved(
    problem: Problem,
    search: Callable[[RematerialisationRun, Ask], None],
    *,
    solver: str,
    time_limit: float,
    threads: int,
    hint: Execution | None = None,
) -> RematerialisationOutcome:
    """Return the outcome of a search by a linear program, if there is anything to search for.

    The search is given the run, and what has the solver solve a program in the time that is left:
    `time_limit` seconds, building included.

    Raises
    ------
    InputError
        If the solver is unknown or not available.
    MethodError
        If the problem is not one of recomputation alone.
    """
    require_solver(solver)
    run = RematerialisationRun(problem, hint, 0, solver=solver, time_limit=time_limit)
    if run.feasible and not run.finished:
        with run.kept():
            search(run, lambda model: run_model(run, model, solver, time_limit, threads))
    return run.outcome()
