"""The time-indexed model on CP-SAT: exact on every grid."""

from __future__ import annotations

import pytest

from offcert.core.result import SolveStatus
from offcert.formulations.common.grid import longest_makespan, symmetric_pairs
from offcert.formulations.common.outcome import ModelOutcome
from offcert.formulations.common.time_grid import build_grid
from offcert.formulations.models.time_indexed_cpsat import solve
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.check import check
from offcert.questions.schedule.simulate import simulate
from support.problems.random_instances import cnn_chain, counterexample, problem_on, seeded
from support.problems.short_problems import (
    alike_problem,
    mixed_short_problem,
    multi_gap_problems,
    pair_problems,
    short_problems,
    simplex_problems,
    stretched_problem,
)
from support.seeds import by_seeds


@pytest.mark.slow
def test_agrees_with_brute_force() -> None:
    """On a grid of one tick, and on the one chosen by default."""
    for seed, (problem, best) in enumerate([*pair_problems(), *simplex_problems()]):
        outcome = solve(problem, grid=1 if seed % 2 else None)
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.status is SolveStatus.OPTIMAL
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []
        assert "error" not in outcome.details


@pytest.mark.slow
def test_a_second_eviction_is_free_of_an_offload() -> None:
    for problem, best in multi_gap_problems(10_000, 20):
        outcome = solve(problem, grid=1)
        assert outcome.objective == outcome.lower_bound == best, problem.name


@pytest.mark.slow
@pytest.mark.parametrize("grid", [2, 3, 5, 8, 1000])
def test_every_grid_is_exact(grid: int) -> None:
    for seed in range(2000 + 25 * grid, 2008 + 25 * grid):
        problem, best = mixed_short_problem(seed, factor=4)
        outcome = solve(problem, grid=grid)
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []


def test_memory_between_two_instants_is_looked_at_once_a_solution_breaks_it() -> None:
    problem, best = mixed_short_problem(3139, largest=3, factor=3)
    outcome = solve(problem, grid=1000)
    assert outcome.objective == outcome.lower_bound == best
    assert outcome.details["rounds"] == 1


@pytest.mark.slow
def test_only_shorter_schedules_are_looked_for_and_the_last_one_is_returned() -> None:
    """From the plainest plan to the optimum; from the optimum to the proof that it is one."""
    for problem, best in short_problems(700, 25):
        found = solve(problem, hint=simulate(problem, sequential(problem)))
        assert found.objective == found.lower_bound == best, problem.name
        again = solve(problem, hint=found.schedule)
        assert again.schedule == found.schedule
        assert again.lower_bound == best


@pytest.mark.slow
def test_problems_whose_times_share_a_divisor_are_solved_in_its_multiples() -> None:
    for seed in range(800, 812):
        problem, best = stretched_problem(seed, 7)
        outcome = solve(problem)
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.details["grid"] % 7 == 0


@pytest.mark.slow
def test_the_optimum_as_upper_bound_loses_nothing_and_less_is_refuted() -> None:
    for problem, best in short_problems(300, 40):
        assert solve(problem, grid=1, upper_bound=best).objective == best, problem.name
        below = solve(problem, grid=1, upper_bound=best - 1)
        assert below.schedule is None
        assert below.lower_bound == best


def test_counterexample_of_the_notes() -> None:
    outcome = solve(counterexample(), grid=1, upper_bound=222)
    assert outcome.lower_bound == outcome.objective == 219


def test_the_plainest_plan_is_enough_to_begin_with() -> None:
    problem = counterexample()
    outcome = solve(problem, hint=simulate(problem, sequential(problem)))
    assert outcome.lower_bound == outcome.objective == 219


@pytest.mark.slow
def test_no_time_leaves_the_hint_and_the_bound() -> None:
    problem = problem_on(seeded(1), cnn_chain(seeded(2), 8), "no-time")
    hint = simulate(problem, sequential(problem))
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

    problem = counterexample()
    hint = simulate(problem, sequential(problem))
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


@pytest.mark.slow
@by_seeds(0, 40, 20)
def test_gaps_that_may_be_exchanged_are_and_the_optimum_stays(seeds: range) -> None:
    """Tensors of one size: the outer of two gaps leaves first and returns last."""
    pairs = 0
    for seed in seeds:
        problem, best = alike_problem(seed)
        data = build_grid(problem, 1, longest_makespan(problem))
        assert data is not None
        times = [(data.offloads[g.tensor].length, g.prefetch.length) for g in data.gaps]
        pairs += len(list(symmetric_pairs(data.gaps, times)))
        outcome = solve(problem)
        assert outcome.objective == outcome.lower_bound == best, problem.name
    assert pairs >= 15
