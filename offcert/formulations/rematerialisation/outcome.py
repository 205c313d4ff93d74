"""The outcome of models of recomputation, and the best execution and bound on the way.

Linear programs of recomputation alone share a run with a solver, and the reading of its answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from offcert.core.errors import MethodError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.result import SolveStatus
from offcert.formulations.common.linear_model import LinearModel
from offcert.formulations.common.linear_solvers import (
    LinearAnswer,
    require_solver,
    solve_linear,
)
from offcert.formulations.common.outcome import SolverClaim, SolverRun, details
from offcert.formulations.rematerialisation.states import scheduled
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class RematerialisationOutcome:
    """The findings of a model of recomputation and the claims of its solver."""

    status: SolveStatus  # ``OPTIMAL`` only if the objective equals the lower bound.
    execution: Execution | None  # The best one known, the hint included.
    schedule: Schedule | None  # Its schedule, in which nothing leaves the device.
    memory: int | None  # Bytes that it takes.
    objective: int | None  # Ticks, or bytes where these are minimised.
    # No execution of the problem is better, as far as the solver is right; at least the bound that
    # the model was given.
    lower_bound: int
    # The least objective among the executions that the model describes, if the solver found that.
    # It is no bound on others.
    within: int | None = None
    # The bound on all executions that the solver showed by itself, if it did.
    claim: SolverClaim | None = None
    # The failure in a sentence, in the solver or around it; None if there was none.
    error: str | None = None
    interrupted: bool = False  # Whether the user ended it.
    seconds: float = 0.0  # How long it took.
    # JSON values that are good to know and that nothing depends on.
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def details(self) -> dict[str, Any]:
        """The part of a certificate about the solver's work."""
        return details(self.statistics, self.error, self.interrupted, self.seconds)


class RematerialisationRun(SolverRun):
    """One run of a model: the best execution and bound so far, whatever happens to the solver.

    Parameters
    ----------
    problem : Problem
        Without offloading, in which any computation may run again.
    hint : Execution, optional
        A legal one; it counts if it keeps to the memory limit, or to the deadline where memory is
        minimised.
    lower_bound : int
        Ticks or bytes, proved elsewhere.
    solver : str
        Name of the solver whose claims these are.
    **statistics : JSON values
        Settings.

    Raises
    ------
    MethodError
        If the problem is not one of these.
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
        self.best: tuple[Execution, Schedule, int] | None = None
        own = max(max(self.network.own_memory), _at_start(self.network))
        natural = own if self.least_bytes else self.network.compute_time
        self.lower_bound = max(lower_bound, natural)
        self.claimed: int | None = None
        self.within: int | None = None
        super().__init__(solver=solver, **statistics)
        self._solver = solver
        if self.least_bytes:
            most = problem.deadline
            self.feasible = most is None or self.network.compute_time <= most
        else:
            self.feasible = own <= problem.platform.memory
        if hint is not None:
            self.take(hint)

    @property
    def objective(self) -> int | None:
        """Ticks or bytes of the best execution, or None."""
        if self.best is None:
            return None
        return self.best[2] if self.least_bytes else self.best[1].makespan

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
        schedule, memory = scheduled(self.problem, execution)
        value, other = schedule.makespan, memory
        limit: int | None = self.problem.platform.memory
        if self.least_bytes:
            value, other, limit = memory, schedule.makespan, self.problem.deadline
        if limit is not None and other > limit:
            return False
        if self.objective is not None and value >= self.objective:
            return False
        self.best = execution, schedule, memory
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
        execution, schedule, memory = self.best or (None, None, None)
        return RematerialisationOutcome(
            status,
            execution,
            schedule,
            memory,
            objective,
            self.lower_bound,
            self.within,
            claim,
            self.error,
            self.interrupted,
            round(self.elapsed, 3),
            self.statistics,
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


def _at_start(network: Network) -> int:
    """Return the bytes of the values that are there at the start and are read at all."""
    return sum(
        value.size
        for value, writer, readers in zip(
            network.values, network.writer, network.readers, strict=True
        )
        if writer < 0 and readers
    )


# How far solvers may be off, as a part of the memory or of the computing time. Their rows hold to
# 1e-6: given by HiGHS, ten times as much to be safe.
RELATIVE_MARGIN = 1e-5


@dataclass(frozen=True)
class LinearRun:
    """A solver at work on one problem.

    Parameters
    ----------
    run : RematerialisationRun
        Best execution and bound, which the search improves.
    solver : str
        ``"scipy"``, or a name that PuLP knows.
    time_limit : float
        Seconds, building the program included.
    threads : int
        Threads of the solver.
    """

    run: RematerialisationRun
    solver: str
    time_limit: float
    threads: int

    @property
    def memory(self) -> int:
        """Bytes: the limit, or what is certainly enough where memory is minimised."""
        if self.run.least_bytes:
            return self.run.network.trace().peak_memory
        return self.run.problem.platform.memory

    def answer(self, model: LinearModel) -> LinearAnswer:
        """Solve a program in the time that is left; what the solver says of itself is noted."""
        left = self.time_limit - self.run.elapsed
        found = solve_linear(model, self.solver, time_limit=left, threads=self.threads)
        self.run.statistics.update(found.statistics)
        self.run.error = found.error or self.run.error
        return found


def solved(
    problem: Problem,
    search: Callable[[LinearRun], None],
    *,
    solver: str,
    time_limit: float,
    threads: int,
    hint: Execution | None,
    lower_bound: int,
) -> RematerialisationOutcome:
    """Return the outcome of a search by a linear program, if there is anything to search for.

    Raises
    ------
    InputError
        If the solver is unknown or not available.
    MethodError
        If the problem is not one of recomputation alone.
    """
    require_solver(solver)
    run = RematerialisationRun(problem, hint, lower_bound, solver=solver, time_limit=time_limit)
    if run.feasible and not run.finished:
        with run.kept():
            search(LinearRun(run, solver, time_limit, threads))
    return run.outcome()
