"""Recomputation without offloading in stages: Checkmate's program, for linear solvers.

Source: Jain et al., *Checkmate: breaking the memory wall with optimal tensor rematerialization*
(2020), §4, with in-place changes, workspaces and what a run discards.

It is exact for executions in which no computation runs twice in a stage (between the first runs of
two consecutive computations), runs of a stage follow the network's order, and there is one copy of
a value in a state at a time, and no other of one that is being changed. All of this costs something
on some networks, so its optimum bounds no other executions (docs/theory/rematerialisation.md). It
checks `retention_cpsat`: with another solver, another idea of time, and other variables.
"""

from __future__ import annotations

from offcert.core.execution import Execution
from offcert.core.problem import Problem
from offcert.formulations.common.linear_solvers import SCIPY
from offcert.formulations.rematerialisation.checkmate_model import CheckmateModel
from offcert.formulations.rematerialisation.linear import RELATIVE_MARGIN, LinearRun, solved
from offcert.formulations.rematerialisation.outcome import RematerialisationOutcome
from offcert.formulations.rematerialisation.states import state_network


def solve(
    problem: Problem,
    *,
    solver: str = SCIPY,
    time_limit: float = 60.0,
    threads: int = 1,
    hint: Execution | None = None,
    lower_bound: int = 0,
) -> RematerialisationOutcome:
    """Find the best execution in stages.

    Parameters
    ----------
    problem : Problem
        With ``recompute="any"`` and ``offload=False``; time or memory to minimise. The program
        has about as many binaries as computations squared times values.
    solver : str
        ``"scipy"``, or a name that PuLP knows.
    time_limit : float
        Seconds, building the program included.
    threads : int
        For the solver.
    hint : Execution, optional
        A legal one; it is returned if nothing better is found.
    lower_bound : int
        Ticks or bytes; a bound already proved elsewhere.

    Returns
    -------
    RematerialisationOutcome
        ``within`` is the least objective of an execution in stages, if the solver found it, up to
        `RELATIVE_MARGIN`; ``claim`` is always None: nothing follows for others.

    Raises
    ------
    InputError
        If the solver is unknown or not available.
    MethodError
        If the problem is not one of recomputation alone.
    """
    return solved(
        problem,
        _search,
        solver=solver,
        time_limit=time_limit,
        threads=threads,
        hint=hint,
        lower_bound=lower_bound,
    )


def _search(linear: LinearRun) -> None:
    run = linear.run
    states, deadline = state_network(run.network), run.problem.deadline
    model = CheckmateModel(states, linear.memory, deadline, run.least_bytes)
    answer = linear.answer(model.model)
    if answer.infeasible:
        run.statistics["within"] = "nothing"
    if answer.values is None:
        return
    run.take(model.execution(answer.values))
    if run.objective is not None and answer.bound > -float("inf"):
        unit = model.unit if run.least_bytes else max(1, model.compute)
        base = 0 if run.least_bytes else model.compute
        if base + (answer.bound + RELATIVE_MARGIN) * unit > run.objective - 1:
            run.within = run.objective
