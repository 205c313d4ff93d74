"""Common parts of linear programs of recomputation alone: a run, a solver, its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offcert.core.execution import Execution
from offcert.formulations.common.linear_model import LinearModel
from offcert.formulations.common.linear_solvers import (
    LinearAnswer,
    require_solver,
    solve_linear,
)
from offcert.formulations.rematerialisation.outcome import (
    RematerialisationOutcome,
    RematerialisationRun,
)
from offcert.questions.schedule.problem import Problem

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
