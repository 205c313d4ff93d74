"""Claims of solvers that others wrote, about one and the same exported program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from offcert.formulations.common.linear_model import ONE
from offcert.formulations.common.linear_solvers import SCIPY, solve_linear
from offcert.formulations.exported.integer_program import CellModel, IntegerProgram

SOLVERS = {"HiGHS": SCIPY, "CBC": "PULP_CBC_CMD", "CP-SAT": None}
# A bound that is so little above an integer means it: tolerances of linear solvers. Assumed.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Claim:
    """The word of a solver on the start of the last operation, in cells.

    Attributes
    ----------
    solver : str
        A key of `SOLVERS`.
    least : int or None
        No start is earlier; None if it says nothing, or that there is no solution.
    found : int or None
        The start in its best solution.
    infeasible : bool
        Whether it says that there is no solution.
    statistics : dict
        Its own words; JSON values.
    """

    solver: str
    least: int | None
    found: int | None
    infeasible: bool
    statistics: dict[str, Any]


def claim_of(model: CellModel, solver: str, seconds: float) -> Claim:
    """Return a solver's claim about a program within a time limit, in seconds."""
    program = model.program()
    name = SOLVERS[solver]
    if name is None:
        return _cpsat(program, solver, seconds)
    linear = model.model
    for column in (column for step in model.operations[-1] for column, _ in step if column != ONE):
        linear.cost[column] = -1.0
    answer = solve_linear(linear, name, time_limit=seconds)
    constant = program.cost[-1]
    known = not answer.infeasible and answer.bound > float("-inf")
    least = -int(-(answer.bound + constant - _TOLERANCE) // 1) if known else None
    found = None
    if answer.values is not None:
        pairs = zip(linear.cost, answer.values, strict=True)
        found = round(constant + sum(cost * value for cost, value in pairs))
    return Claim(solver, least, found, answer.infeasible, answer.statistics)


def _cpsat(program: IntegerProgram, solver: str, seconds: float) -> Claim:
    model = cp_model.CpModel()
    columns = [model.new_bool_var(name) for name in program.names]
    for terms, low, high in program.rows:
        total = sum(value * columns[column] for column, value in terms)
        if low is not None:
            model.add(total >= low)
        if high is not None:
            model.add(total <= high)
    model.minimize(sum(c * x for c, x in zip(program.cost, columns, strict=True)))
    engine = cp_model.CpSolver()
    engine.parameters.max_time_in_seconds = seconds
    engine.parameters.num_workers = 1
    status = engine.solve(model)
    solved = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    infeasible = status == cp_model.INFEASIBLE
    said = {"solver_status": engine.status_name(status), "seconds": round(engine.wall_time, 3)}
    least = None if infeasible else round(engine.best_objective_bound)
    found = round(engine.objective_value) if solved else None
    return Claim(solver, least, found, infeasible, said)
