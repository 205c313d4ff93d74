"""The time-indexed model on CP-SAT: exact on a grid of one tick, a bound on coarser ones."""

from __future__ import annotations

import pytest

from offcert.core.check import check
from offcert.core.result import SolveStatus
from offcert.formulations.common.outcome import ModelOutcome
from offcert.formulations.models.time_indexed_cpsat import solve
from tests.formulations.short_problems import (
    mixed_short_problem,
    multi_gap_problems,
    pair_problems,
    short_problems,
    simplex_problems,
)
from tests.random_instances import cnn_chain, counterexample, problem_on, seeded


def test_agrees_with_brute_force_on_a_grid_of_one_tick() -> None:
    for problem, best in [*pair_problems(), *simplex_problems()]:
        outcome = solve(problem, grid=1)
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.status is SolveStatus.OPTIMAL
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []
        assert "error" not in outcome.details


def test_a_second_eviction_is_free_of_an_offload() -> None:
    for problem, best in multi_gap_problems(10_000, 20):
        outcome = solve(problem, grid=1)
        assert outcome.objective == outcome.lower_bound == best, problem.name


@pytest.mark.parametrize("grid", range(2, 8))
def test_grid_bounds_never_exceed_the_optimum_and_plans_hold_at_full_resolution(grid: int) -> None:
    for seed in range(2000 + 25 * grid, 2010 + 25 * grid):
        problem, best = mixed_short_problem(seed, largest=4, factor=2)
        outcome = solve(problem, grid=grid)
        assert outcome.lower_bound <= best, problem.name
        if outcome.schedule is not None:
            assert outcome.schedule.makespan >= best
            assert check(problem, outcome.schedule) == []
        assert (outcome.status is SolveStatus.OPTIMAL) == (outcome.objective == outcome.lower_bound)


def test_the_optimum_as_upper_bound_loses_nothing_and_less_is_refuted() -> None:
    for problem, best in short_problems(300, 40):
        assert solve(problem, grid=1, upper_bound=best).objective == best, problem.name
        below = solve(problem, grid=1, upper_bound=best - 1)
        assert below.schedule is None
        assert below.lower_bound == best


def test_counterexample_of_the_notes() -> None:
    """With the windows of a schedule one per cent off; without any it takes a few seconds."""
    outcome = solve(counterexample(), grid=1, upper_bound=222)
    assert outcome.lower_bound == outcome.objective == 219


def test_a_coarse_grid_bounds_the_counterexample() -> None:
    outcome = solve(counterexample(), grid=10)
    assert 163 <= outcome.lower_bound <= 219
    assert outcome.details["grid"] == 10


def test_no_time_leaves_the_hint_and_the_bound() -> None:
    problem = problem_on(seeded(1), cnn_chain(seeded(2), 8), "no-time")
    hint = solve(problem, grid=20).schedule
    assert hint is not None
    for limit in (0.0, 0.1):
        outcome = solve(problem, grid=1, time_limit=limit, hint=hint, lower_bound=17)
        assert outcome.objective is not None
        assert 17 <= outcome.lower_bound <= outcome.objective <= hint.makespan


def test_too_little_memory_is_a_result() -> None:
    problem = counterexample()
    outcome = solve(problem.with_memory(problem.trace.least_memory - 1))
    assert outcome.status is SolveStatus.INFEASIBLE
    assert "lacks 1 bytes" in outcome.details["infeasible"]


def test_a_failing_solver_costs_only_its_contribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> ModelOutcome:
        raise RuntimeError("no licence")

    problem = problem_on(seeded(8), cnn_chain(seeded(9), 3), "fails")
    hint = solve(problem, grid=5).schedule
    path = "offcert.formulations.models.time_indexed_cpsat.cp_model.CpSolver.solve"
    monkeypatch.setattr(path, fail)
    outcome = solve(problem, hint=hint)
    assert outcome.schedule == hint
    assert outcome.details["error"] == "RuntimeError: no licence"


def test_details_name_solver_version_and_settings() -> None:
    details = solve(counterexample(), grid=30, seed=3).details
    assert details["solver"] == "OR-Tools CP-SAT"
    assert details["version"]
    assert (details["grid"], details["seed"], details["threads"]) == (30, 3, 1)
