"""Solvers for `LinearModel`: those that PuLP knows, by name, the HiGHS inside SciPy, and CP-SAT.

What counts as a lower bound
----------------------------
Solvers calculate in floats: rows and integrality hold up to a tolerance, so what they optimise over
contains the feasible set, and their bounds err to the low side, up to rounding that callers cover
with a margin. Three claims are taken:

- The bound that HiGHS reports through SciPy.
- The objective, if the solver says *optimal* with both gaps set to 0, and PuLP's interface to it
  tells that from *stopped with a solution*. Many interfaces do not (those to SCIP and GLPK among
  them): their solutions are used, their claims are not.
- CBC's ``Lower bound`` line in its log, if it stopped early. PuLP does not pass it on. It is
  printed with three decimals, so half a unit in the last place comes off.

CBC's word alone is not enough. If its time runs out while it preprocesses, it can say that the
program is infeasible. So a claim counts if the log says that the search was completed, or if it
came long before the time limit.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import csr_array

from offcert.core.errors import InputError
from offcert.formulations.common.children import stopping_children
from offcert.formulations.common.highs import FAILED, run_highs
from offcert.formulations.common.linear_model import LinearAnswer, LinearModel
from offcert.formulations.common.outcome import CP_SAT, SolverRun

# PuLP imports highspy when it is installed, and that breaks OR-Tools in the same process.
_shadowed = "highspy" not in sys.modules
if _shadowed:
    sys.modules["highspy"] = None  # type: ignore[assignment]
try:
    import pulp
finally:
    if _shadowed:
        del sys.modules["highspy"]

SCIPY = "scipy"
# CP-SAT, for programs whose numbers are all integers.
CPSAT = "cpsat"
DEFAULT = "PULP_CBC_CMD"
_CBC = ("PULP_CBC_CMD", "COIN_CMD")
# Solvers whose PuLP interface tells a proven optimum from a solution at the time limit.
_HONEST = (*_CBC, "HiGHS_CMD")
# Share of its time limit up to which CBC's claims of infeasibility are believed. Arbitrary.
_EARLY = 0.5
# SciPy's status for an infeasible program. Given by SciPy.
_SCIPY_INFEASIBLE = 2
# Half a unit in the last place that CBC prints. Derived.
_PRINTED = 0.0005


def solver_names() -> list[str]:
    """Return the names of the solvers that can be used here and now."""
    return [SCIPY, *(name for name in _known() if _make(name).available())]


def claimant(solver: str) -> str:
    """Return the name under which the claims of a solver are recorded."""
    return CP_SAT if solver == CPSAT else solver


def require_solver(name: str) -> None:
    """Raise unless `name` is a solver that can be used here."""
    if name == SCIPY:
        return
    if name == "HiGHS":
        problem = 'cannot be used beside OR-Tools; "scipy" and "HiGHS_CMD" run HiGHS too'
    elif name not in _known():
        problem = "is unknown"
    elif not _make(name).available():
        problem = "is not installed"
    else:
        return
    raise InputError(f"solver {name!r} {problem}; available are {', '.join(solver_names())}")


def solve_linear(
    model: LinearModel,
    solver: str = DEFAULT,
    *,
    time_limit: float = 60.0,
    threads: int = 1,
    seed: int = 0,
) -> LinearAnswer:
    """Minimise a program, or find out how good its best solution can be.

    The solver is ``"scipy"``, a name from ``pulp.listSolvers()``, or, if all numbers are integers,
    ``"cpsat"``. If none of its `time_limit` seconds are left it is not started. `threads` are for
    solvers that have such a setting (SciPy's HiGHS uses one), `seed` is for CP-SAT.
    """
    if solver != CPSAT:
        require_solver(solver)
    began = time.monotonic()
    statistics: dict[str, Any] = {
        "solver": claimant(solver),
        "version": _version(solver),
        "gap": 0.0,
        "threads": 1 if solver == SCIPY else threads,
        "rows": len(model.rows),
        "columns": len(model.low),
        "nonzeros": model.nonzeros,
    }
    if model.contradictory:
        statistics["solver_status"] = "a row without variables cannot hold"
        return LinearAnswer(None, math.inf, True, statistics=statistics)
    if not model.low:
        statistics["solver_status"] = "everything is fixed"
        return LinearAnswer([], 0.0, False, statistics=statistics)
    if time_limit <= 0:
        statistics["solver_status"] = "not started: no time left"
        return LinearAnswer(None, -math.inf, False, statistics=statistics)
    if solver == SCIPY:
        answer = _solve_scipy(model, time_limit, statistics)
    elif solver == CPSAT:
        # Who solves by others need not load OR-Tools.
        from offcert.formulations.common.cpsat import solve_integers

        answer = solve_integers(model, time_limit, threads, seed, statistics)
    else:
        answer = _solve_pulp(model, solver, time_limit, threads, statistics)
    statistics["solver_seconds"] = round(time.monotonic() - began, 3)
    return answer


def run_model(
    run: SolverRun,
    model: LinearModel,
    solver: str,
    time_limit: float,
    threads: int,
    seed: int = 0,
) -> LinearAnswer:
    """Solve a program in the rest of `time_limit` seconds, and record what the solver says of it.

    What the answer's bound and values stand for is up to the caller.
    """
    left = time_limit - run.elapsed
    answer = solve_linear(model, solver, time_limit=left, threads=threads, seed=seed)
    run.statistics.update(answer.statistics)
    run.error = answer.error or run.error
    return answer


def _version(solver: str) -> str:
    if solver == CPSAT:
        return version("ortools")
    return f"SciPy {scipy.__version__}" if solver == SCIPY else f"PuLP {version('pulp')}"


def _known() -> list[str]:
    # PuLP gives two of its classes the same name; HiGHS is the one that needs highspy.
    return [name for name in dict.fromkeys(pulp.listSolvers()) if name != "HiGHS"]


def _make(name: str, **options: Any) -> Any:
    """Return a PuLP solver, with those of `options` that it knows."""
    kind = next(kind for kind in pulp.apis._all_solvers if kind.name == name)
    known = inspect.signature(kind.__init__).parameters
    # Without this PuLP 3.3 warns that a later version will not bundle CBC.
    options["_skip_v4_deprecation"] = True
    return kind(msg=False, **{key: value for key, value in options.items() if key in known})


def _solve_scipy(model: LinearModel, time_limit: float, statistics: dict[str, Any]) -> LinearAnswer:
    starts = np.cumsum([0, *(len(terms) for terms, _, _ in model.rows)])
    columns = [column for terms, _, _ in model.rows for column, _ in terms]
    values = [value for terms, _, _ in model.rows for _, value in terms]
    matrix = csr_array((values, columns, starts), shape=(len(model.rows), len(model.low)))
    rows = LinearConstraint(
        matrix, [low for _, low, _ in model.rows], [high for _, _, high in model.rows]
    )
    began = time.monotonic()
    for presolve in (True, False):
        left = max(0.01, time_limit - (time.monotonic() - began))
        answer = run_highs(
            "milp",
            left,
            c=np.array(model.cost),
            integrality=np.array(model.integer, dtype=np.int64),
            bounds=Bounds(np.array(model.low), np.array(model.high)),
            constraints=rows if model.rows else (),
            options={
                "time_limit": left,
                "mip_rel_gap": 0.0,
                "presolve": presolve,
            },
        )
        statistics["presolve"] = presolve
        # HiGHS 1.12 sometimes fails in handing a solution back through its presolve.
        if answer.status != FAILED:
            break
    failed = answer.status == FAILED
    statistics["solver_status"] = str(answer.message)
    bound = getattr(answer, "mip_dual_bound", None)
    if bound is None:
        # A program without binaries has no such bound; its optimum is one.
        bound = answer.fun if answer.status == 0 else -math.inf
    found = None if answer.x is None else [float(value) for value in answer.x]
    infeasible = answer.status == _SCIPY_INFEASIBLE
    return LinearAnswer(
        found,
        math.inf if infeasible else float(bound),
        infeasible,
        answer.status == 0,
        f"HiGHS failed: {answer.message}" if failed else None,
        statistics,
    )


def _solve_pulp(
    model: LinearModel, name: str, time_limit: float, threads: int, statistics: dict[str, Any]
) -> LinearAnswer:
    program, variables = _translate(model)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        solver = _make(
            name,
            timeLimit=time_limit,
            gapRel=0.0,
            gapAbs=0.0,
            threads=threads,
            logPath=str(log) if name in _CBC else None,
        )
        # Whoever stops or fails leaves its files behind.
        solver.tmpDir = folder
        try:
            with stopping_children():
                program.solve(solver)
        except pulp.PulpError as error:
            failure = f"{type(error).__name__}: {error}"
            return LinearAnswer(None, -math.inf, False, False, failure, statistics)
        text = log.read_text(errors="replace") if log.exists() else ""
    statistics["solver_status"] = pulp.LpSolution[program.sol_status]
    trusted = name in _HONEST
    if name in _CBC:
        release = re.search(r"^Version:\s+(\S+)", text, re.MULTILINE)
        statistics["version"] += f", CBC {release.group(1)}" if release else ""
        early = time.monotonic() - began < _EARLY * time_limit
        trusted = early or "\nResult - Optimal" in text or "\nResult - Problem proven" in text
    statistics["claims_trusted"] = trusted
    optimal = program.sol_status == pulp.LpSolutionOptimal
    found = None
    if optimal or program.sol_status == pulp.LpSolutionIntegerFeasible:
        found = [float(variable.varValue or 0.0) for variable in variables]
    bound = -math.inf
    if trusted and optimal and found is not None:
        bound = sum(cost * value for cost, value in zip(model.cost, found, strict=True))
    elif name in _CBC:
        bound = cbc_bound(text)
    infeasible = trusted and program.status == pulp.LpStatusInfeasible
    known = math.inf if infeasible else bound
    return LinearAnswer(found, known, infeasible, trusted and optimal, statistics=statistics)


def _translate(model: LinearModel) -> tuple[Any, list[Any]]:
    """Return the program as PuLP's objects, and its variables."""
    program = pulp.LpProblem("model", pulp.LpMinimize)
    # Later versions of PuLP let the program create its variables, and warn otherwise.
    create = getattr(program, "add_variable", pulp.LpVariable)
    variables = [
        create(
            f"c{number}",
            low if math.isfinite(low) else None,
            high if math.isfinite(high) else None,
            pulp.LpInteger if integer else pulp.LpContinuous,
        )
        for number, (low, high, integer) in enumerate(
            zip(model.low, model.high, model.integer, strict=True)
        )
    ]
    program.setObjective(
        pulp.LpAffineExpression(
            [(variables[number], cost) for number, cost in enumerate(model.cost) if cost != 0.0]
        )
    )
    for terms, low, high in model.rows:
        expression = pulp.LpAffineExpression([(variables[c], value) for c, value in terms])
        if low == high:
            program.addConstraint(expression == low)
            continue
        if math.isfinite(low):
            program.addConstraint(expression >= low)
        if math.isfinite(high):
            program.addConstraint(expression <= high)
    return program, variables


_LINES = re.MULTILINE | re.DOTALL


def _number(text: str) -> float:
    """Return a number of a log, or infinity for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.inf


def cbc_bound(log: str) -> float:
    """Return the lower bound that CBC's log claims, or minus infinity if it claims none.

    Only the summary that follows the last ``Result -`` line counts: earlier lines speak of
    subproblems and of programs that have been transformed. CBC 2.10.3, stopped in its root by the
    time, has printed its best objective as the bound where the optimum is less
    (docs/commands.md): so a search that was stopped claims nothing that closes its gap.
    """
    _, found, summary = log.rpartition("\nResult - ")
    claimed = re.search(r"^Lower bound:\s+(\S+)\s*$", summary, re.MULTILINE)
    if not found or claimed is None:
        return -math.inf
    try:
        bound = float(claimed.group(1))
    except ValueError:
        return -math.inf
    stopped = re.match(r"Stopped on time.*?^Objective value:\s+(\S+)$", summary, _LINES)
    if stopped and _number(stopped[1]) <= bound + _PRINTED:
        return -math.inf
    # CBC's infinity is 1e50 or the largest float, and it means that nothing is known.
    return bound - _PRINTED if abs(bound) < 1e30 else -math.inf
