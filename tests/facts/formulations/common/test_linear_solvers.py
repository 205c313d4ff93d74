"""Solvers behind one function: agreement, claims that are not believed, names."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulp
import pytest

from offcert.core.errors import InputError
from offcert.formulations.common import linear_solvers
from offcert.formulations.common.linear_model import ONE, LinearModel, value_of
from offcert.formulations.common.linear_solvers import (
    cbc_bound,
    require_solver,
    solve_linear,
    solver_names,
)


def knapsack(seed: int, items: int) -> LinearModel:
    """Return a covering knapsack with a continuous variable of high cost."""
    rng = random.Random(seed)
    model = LinearModel()
    sizes = [rng.randint(5, 40) for _ in range(items)]
    chosen = [model.column(0, 1, cost=rng.randint(5, 40), integer=True) for _ in sizes]
    rest = model.column(0, math.inf, cost=3.0)
    terms = [(column, float(size)) for column, size in zip(chosen, sizes, strict=True)]
    model.row([*terms, (rest, 1.0), (ONE, 2.0)], sum(sizes) // 2)
    return model


def test_solvers_agree() -> None:
    for seed in range(8):
        model = knapsack(seed, 12)
        cbc = solve_linear(model)
        highs = solve_linear(model, "scipy")
        assert cbc.bound == pytest.approx(highs.bound, abs=1e-6)
        for answer in (cbc, highs):
            assert answer.values is not None
            cost = sum(c * v for c, v in zip(model.cost, answer.values, strict=True))
            assert cost == pytest.approx(answer.bound, abs=1e-6)


@pytest.mark.parametrize("solver", ["scipy", "PULP_CBC_CMD"])
def test_infeasible_programs_are_recognised(solver: str) -> None:
    model = LinearModel()
    x, y = model.binary(), model.binary()
    model.row([(x[0][0], 2.0), (y[0][0], 2.0)], 1.0, 1.0)
    answer = solve_linear(model, solver)
    assert answer.infeasible
    assert answer.values is None


@pytest.mark.parametrize("solver", ["scipy", "PULP_CBC_CMD"])
def test_programs_without_rows_variables_or_time(solver: str) -> None:
    empty = LinearModel()
    assert solve_linear(empty, solver).values == []
    empty.row([(ONE, 1.0)], 2.0)
    assert solve_linear(empty, solver).infeasible
    free = LinearModel()
    column = free.column(1.5, 4.0, cost=2.0)
    answer = solve_linear(free, solver)
    assert answer.values is not None
    assert value_of([(column, 1.0), (ONE, 1.0)], answer.values) == pytest.approx(2.5)
    assert solve_linear(knapsack(1, 5), solver, time_limit=0.0).bound == -math.inf


def test_equalities_and_two_sided_rows_reach_the_solver() -> None:
    for solver in ("scipy", "PULP_CBC_CMD"):
        model = LinearModel()
        x, y = model.column(0, 10, cost=1.0), model.column(0, 10, cost=-1.0)
        model.row([(x, 1.0), (y, -1.0)], -2.0, 3.0)
        model.row([(x, 1.0), (y, 1.0)], 8.0, 8.0)
        assert solve_linear(model, solver).values == pytest.approx([3.0, 5.0])


SUMMARY = """
Cbc0010I After 100 nodes, best solution 50, best possible 44

Result - Stopped on time limit

Objective value:                50.00000000
Lower bound:                    44.123
Gap:                            0.13
"""


def test_the_bound_in_a_log_of_cbc() -> None:
    assert cbc_bound(SUMMARY) == pytest.approx(44.1225)
    assert cbc_bound(SUMMARY.replace("44.123", "-1e+50")) == -math.inf
    assert cbc_bound(SUMMARY.replace("44.123", "nan")) == -math.inf
    assert cbc_bound(SUMMARY.replace("44.123", "")) == -math.inf
    # Stopped in its root, it has printed its objective as the bound, of an optimum of at most 1603.
    stopped = "\nResult - Stopped on time limit\n\nObjective value:                1660.00000000\n"
    assert cbc_bound(f"{stopped}Lower bound:                    1660.000\nGap: 0.00\n") == -math.inf
    assert cbc_bound(f"{stopped}Lower bound:  1500.000\n") == pytest.approx(1499.9995)
    # Without a summary, what went before speaks of a transformed program, or of part of one.
    assert cbc_bound("Lower bound:  70.000\nContinuous objective value is 43 - 0.1 seconds") == (
        -math.inf
    )
    assert cbc_bound("") == -math.inf


def test_infeasibility_at_the_time_limit_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """CBC 2.10 says so when its time runs out in the preprocessing of a feasible program."""

    def claim(self: pulp.LpSolver, program: pulp.LpProblem) -> int:
        program.assignStatus(pulp.LpStatusInfeasible, pulp.LpSolutionInfeasible)
        return int(pulp.LpStatusInfeasible)

    monkeypatch.setattr(pulp.PULP_CBC_CMD, "actualSolve", claim)
    assert solve_linear(knapsack(1, 5), time_limit=10.0).infeasible
    assert not solve_linear(knapsack(1, 5), time_limit=1e-9).infeasible


def test_a_failing_process_leaves_no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: pulp.LpSolver, program: pulp.LpProblem) -> int:
        raise pulp.PulpSolverError("killed")

    monkeypatch.setattr(pulp.PULP_CBC_CMD, "actualSolve", fail)
    answer = solve_linear(knapsack(1, 5))
    assert (answer.values, answer.bound, answer.infeasible) == (None, -math.inf, False)
    assert answer.error == "PulpSolverError: killed"


def test_a_solver_that_is_stopped_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(self: pulp.LpSolver, *args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("TMP", str(tmp_path))
    monkeypatch.setattr(pulp.PULP_CBC_CMD, "readsol_MPS", stop)
    with pytest.raises(KeyboardInterrupt):
        solve_linear(knapsack(1, 5))
    assert not list(tmp_path.iterdir())


def test_claims_through_interfaces_that_do_not_tell_optimal_from_stopped_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PuLP's interface to SCIP reports every solution as optimal, at the time limit too."""

    def claim(self: pulp.LpSolver, program: pulp.LpProblem) -> int:
        program.assignVarsVals({v.name: 1.0 for v in program.variables()})
        program.assignStatus(pulp.LpStatusOptimal)
        return int(pulp.LpStatusOptimal)

    monkeypatch.setattr(pulp.SCIP_CMD, "available", lambda self: True)
    monkeypatch.setattr(pulp.SCIP_CMD, "actualSolve", claim)
    answer = solve_linear(knapsack(1, 5), "SCIP_CMD")
    assert answer.values is not None
    assert answer.bound == -math.inf
    assert answer.statistics["claims_trusted"] is False


def test_names() -> None:
    assert {"scipy", "PULP_CBC_CMD"} <= set(solver_names())
    require_solver("scipy")
    require_solver("PULP_CBC_CMD")
    with pytest.raises(InputError, match=r"'FOO' is unknown; available are scipy, "):
        require_solver("FOO")
    with pytest.raises(InputError, match=r'beside OR-Tools; "scipy" and "HiGHS_CMD" run HiGHS'):
        require_solver("HiGHS")


def test_a_known_solver_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulp.GLPK_CMD, "available", lambda self: False)
    with pytest.raises(InputError, match=r"'GLPK_CMD' is not installed; available are scipy"):
        require_solver("GLPK_CMD")


@pytest.mark.slow
def test_importing_pulp_does_not_import_highspy() -> None:
    """Whoever has highspy installed could not load OR-Tools afterwards."""
    code = (
        f"import sys, {linear_solvers.__name__}\n"
        "sys.exit(int('highspy' in sys.modules or 'ortools' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
