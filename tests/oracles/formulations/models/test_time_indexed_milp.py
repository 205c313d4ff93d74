"""The time-indexed program: exact on simplex links, a bound on duplex ones, any solver."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.core.result import SolveStatus
from offcert.core.trace import Trace
from offcert.formulations.models.time_indexed_milp import solve
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.check import check
from offcert.questions.schedule.simulate import simulate
from support.problems.random_instances import counterexample
from support.problems.short_problems import (
    mixed_short_problem,
    multi_gap_problems,
    pair_problems,
    short_problem,
    simplex_problems,
)


@pytest.mark.slow
def test_agrees_with_brute_force() -> None:
    """CBC on every thirtieth problem, as it is a process of its own; HiGHS on the others.

    On a grid of one tick; every other problem on a simplex link on the grid chosen by default.
    """
    for seed, (problem, best) in enumerate([*pair_problems(), *simplex_problems()]):
        grid = 1 if problem.platform.duplex or seed % 2 else None
        outcome = solve(problem, grid=grid, solver="scipy" if seed % 30 else "PULP_CBC_CMD")
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.status is SolveStatus.OPTIMAL
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []
        assert "error" not in outcome.details


@pytest.mark.slow
def test_a_second_eviction_is_free_of_an_offload() -> None:
    for problem, best in multi_gap_problems(10_000, 20):
        outcome = solve(problem, grid=1, solver="scipy")
        assert outcome.objective == outcome.lower_bound == best, problem.name


@pytest.mark.slow
@pytest.mark.parametrize("grid", range(2, 8))
def test_coarse_grids_are_exact_on_simplex_links_and_bound_on_duplex_ones(grid: int) -> None:
    simplex = 0
    for seed in range(3000 + 20 * grid, 3020 + 20 * grid):
        problem, best = mixed_short_problem(seed, largest=3, factor=3)
        outcome = solve(problem, grid=grid)
        assert outcome.lower_bound <= best, problem.name
        if outcome.schedule is not None:
            assert check(problem, outcome.schedule) == []
        if not problem.platform.duplex:
            assert outcome.objective == outcome.lower_bound == best, problem.name
            simplex += best > problem.trace.compute_time
    assert simplex > 0


def test_only_shorter_schedules_are_looked_for_and_the_last_one_is_returned() -> None:
    """From the plainest plan to the optimum; from the optimum to the proof that it is one."""
    for seed in range(3200, 3215):
        problem, best = mixed_short_problem(seed, largest=3, factor=3)
        plain = simulate(problem, sequential(problem))
        found = solve(problem, hint=plain)
        assert found.objective == found.lower_bound == best, problem.name
        again = solve(problem, hint=found.schedule)
        assert again.schedule == found.schedule
        assert again.lower_bound == best


def test_counterexample_of_the_notes() -> None:
    outcome = solve(counterexample(), grid=1, upper_bound=220)
    assert outcome.lower_bound == outcome.objective == 219


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.02, 0.15])
def test_time_limits_leave_valid_bounds(limit: float) -> None:
    """CBC says "infeasible" if its time runs out while it preprocesses: not to be believed."""
    for seed in (155, 35):
        problem, best = short_problem(seed, largest=4, factor=4)
        for solver in ("PULP_CBC_CMD", "scipy"):
            outcome = solve(problem, grid=1, time_limit=limit, solver=solver)
            assert problem.trace.compute_time <= outcome.lower_bound <= best
            assert outcome.status is not SolveStatus.INFEASIBLE


def test_less_than_the_optimum_is_refuted() -> None:
    for seed in range(400, 415):
        problem, best = mixed_short_problem(seed, largest=3, factor=9)
        outcome = solve(problem, grid=1, upper_bound=best - 1, solver="scipy")
        assert outcome.schedule is None
        assert outcome.lower_bound == best, problem.name


@pytest.mark.slow
def test_bytes_do_not_overwhelm_the_rows() -> None:
    """Sizes of real networks: sums that equal a requirement must not be cut off by rounding."""
    for seed in range(500, 515):
        problem, best = mixed_short_problem(seed, largest=3, factor=9)
        unit = 10**9 + 7
        tensors = [replace(tensor, size=tensor.size * unit) for tensor in problem.trace.tensors]
        operations = [replace(o, workspace=o.workspace * unit) for o in problem.trace.operations]
        platform = replace(
            problem.platform,
            memory=problem.platform.memory * unit,
            bandwidth=problem.platform.rate(Kind.OFFLOAD) * unit,
            prefetch_bandwidth=problem.platform.rate(Kind.PREFETCH) * unit,
        )
        large = replace(problem, network=Trace(operations, tensors), platform=platform)
        assert solve(large, grid=1, solver="scipy").lower_bound == best, problem.name


def test_an_unknown_solver_is_named_with_those_that_are_there() -> None:
    with pytest.raises(InputError, match=r"'CPLEX9' is unknown; available are scipy, .*CBC"):
        solve(counterexample(), solver="CPLEX9")


def test_details_name_solver_version_and_settings() -> None:
    problem, _ = short_problem(0, largest=3, factor=9)
    details = solve(problem, grid=2, time_limit=30).details
    assert details["solver"] == "scipy"
    assert re.fullmatch(r"SciPy \d\S+", details["version"])
    assert (details["gap"], details["grid"], details["time_limit"]) == (0.0, 2, 30)
