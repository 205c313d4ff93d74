"""The interval model against brute force, at every grid, and at its edges."""

from __future__ import annotations

import threading
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Kind, Link, Platform
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.common.grid import longest_makespan
from offcert.formulations.models.interval_cpsat import solve
from offcert.formulations.models.interval_data import (
    LARGEST_ENERGY,
    choose_grid,
    prepare,
)
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from support.oracles.schedules import brute_force
from support.problems.random_instances import (
    cnn_chain,
    counterexample,
    mixed_problem,
    problem_on,
    seeded,
)
from support.seeds import by_seeds

# 4 × 50 problems of all families, both links.
BATCH = 50


@cache
def problem_and_optimum(seed: int) -> tuple[Problem, int]:
    problem = mixed_problem(seed)
    best = brute_force(problem)
    assert best is not None
    return problem, best


@pytest.mark.slow
@by_seeds(0, 50, 50)
def test_agrees_with_brute_force(seeds: range) -> None:
    for seed in seeds:
        problem = mixed_problem(seed)
        outcome = solve(problem)
        assert outcome.objective == outcome.lower_bound == brute_force(problem), problem.name
        assert outcome.status is SolveStatus.OPTIMAL
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []
        assert "error" not in outcome.details


@pytest.mark.slow
@by_seeds(0, 30, 30)
def test_a_hint_at_the_optimum_is_feasible_in_the_model(seeds: range) -> None:
    """The hint bounds the makespan: a model that excluded it would prove a bound above it."""
    for seed in seeds:
        problem = mixed_problem(2000 + seed)
        best = solve(problem).schedule
        again = solve(problem, hint=best)
        assert again.status is SolveStatus.OPTIMAL, problem.name
        assert "error" not in again.details
        assert best is not None
        assert again.objective == best.makespan


def test_counterexample_of_the_notes() -> None:
    assert solve(counterexample()).objective == 219


@pytest.mark.slow
def test_ordered_schedules_miss_the_counterexample_because_the_early_spike_forces_a_detour() -> (
    None
):
    """F_1's workspace fills the memory, so x_0 must be gone then; B_0 needs it at the very end.

    Bringing it back while the link is idle in F_2 costs nothing, but x_3 and x_6 leave later. If
    every offload precedes every prefetch, x_0 has to come back after x_6 has left.
    """
    problem = counterexample()
    general, ordered = solve(problem), solve(problem, ordered=True)
    assert (general.objective, ordered.objective) == (219, 254)
    assert ordered.lower_bound == 254
    kinds = {name: _kinds(outcome.schedule) for name, outcome in (("g", general), ("o", ordered))}
    assert kinds["o"] == sorted(kinds["o"])
    assert kinds["g"] != sorted(kinds["g"])


def _kinds(schedule: Schedule | None) -> list[str]:
    assert schedule is not None
    return [transfer.kind.value for transfer in schedule.transfers]


@pytest.mark.slow
@pytest.mark.parametrize("grid", range(1, 8))
def test_grid_bounds_never_exceed_the_optimum_and_plans_hold_at_full_resolution(grid: int) -> None:
    for seed in range(3000, 3012):
        problem, best = problem_and_optimum(seed)
        outcome = solve(problem, grid=grid)
        assert outcome.lower_bound <= best, problem.name
        if outcome.schedule is not None:
            assert outcome.objective is not None
            assert outcome.objective >= best
            assert check(problem, outcome.schedule) == []
        assert (outcome.status is SolveStatus.OPTIMAL) == (outcome.objective == outcome.lower_bound)


def test_an_operation_of_no_duration_still_needs_its_memory() -> None:
    """A cumulative constraint does not see the spike: it lasts no time, but it is there."""
    operations = [Operation("a", 3), Operation("spike", 0, 8), Operation("b", 3), Operation("c", 1)]
    trace = Trace(operations, [Tensor("x", 10, (0, 3))])
    problem = Problem("trap", trace, Platform(10, Fraction(2)))
    outcome = solve(problem)
    # x leaves from 3 to 8, the spike is at 8, x comes back beside b until 13, c ends at 14.
    assert outcome.objective == brute_force(problem) == 14


def test_a_prefetch_may_start_with_an_operation_of_no_duration_but_not_with_a_longer_one() -> None:
    def best(duration: int) -> int | None:
        operations = [Operation("a", 0), Operation("spike", duration, 5), Operation("c", 0)]
        trace = Trace(operations, [Tensor("x", 5, (0, 2))])
        return solve(Problem("edge", trace, Platform(5, Fraction(1)))).objective

    assert best(0) == 10
    assert best(1) == 11


def test_scaled_problems_have_scaled_optima() -> None:
    """Nanoseconds and bytes of real networks: the grid follows, and the bound stays close."""
    chain = cnn_chain(seeded(5), 4)
    small = problem_on(seeded(6), chain, "small")
    time, size = 10**7, 10**8 + 7
    large_chain = Chain(
        [time * value for value in chain.forward],
        [time * value for value in chain.backward],
        [size * value for value in chain.activation],
        [size * value for value in chain.gradient],
    )
    rate = small.platform.bandwidth * Fraction(size, time)
    platform = replace(small.platform, memory=small.platform.memory * size, bandwidth=rate)
    large = Problem("large", large_chain, platform)
    assert solve(large).objective is not None
    exact = brute_force(large)
    outcome = solve(large)
    assert exact is not None
    assert outcome.objective == exact
    assert exact * 0.999 <= outcome.lower_bound <= exact


@pytest.mark.slow
def test_coprime_sizes_are_rounded_as_a_relaxation() -> None:
    """Sizes without a common divisor that exceed the solver's heights: bounds stay bounds."""
    for seed in range(20):
        problem = mixed_problem(4000 + seed)
        trace = problem.trace
        tensors = [
            replace(tensor, size=tensor.size * 10**10 + index if tensor.size else 0)
            for index, tensor in enumerate(trace.tensors)
        ]
        huge = Trace(
            [replace(o, workspace=o.workspace * 10**10) for o in trace.operations], tensors
        )
        out, back = (problem.platform.rate(kind) * 10**10 for kind in Kind)
        memory = max(problem.platform.memory * 10**10, huge.least_memory)
        platform = Platform(memory, out, problem.platform.link, back)
        scaled = Problem(problem.name, huge, platform)
        best = brute_force(scaled)
        outcome = solve(scaled)
        assert best is not None
        assert outcome.lower_bound <= best, problem.name
        if outcome.schedule is not None:
            assert check(scaled, outcome.schedule) == []


def test_slow_returns_take_no_time_from_fast_departures() -> None:
    operations = [Operation("a", 1), Operation("spike", 1, 20), Operation("b", 1)]
    trace = Trace(operations, [Tensor("x", 10, (0, 2)), Tensor("y", 10, (0, 2))])
    problem = Problem("fast out", trace, Platform(20, Fraction(10), Link.SIMPLEX, Fraction(1)))
    # Both leave from 1 to 3, spike runs until 4, both are back at 24.
    assert longest_makespan(problem) == 25
    outcome = solve(problem)
    assert outcome.objective == outcome.lower_bound == brute_force(problem) == 25


def test_sizes_rounded_up_to_the_same_one_are_not_interchangeable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Either tensor makes the room; the inner one is a byte smaller and a tick faster each way."""
    trace = Trace(
        [Operation("w", 1), Operation("spike", 1, 8), Operation("r", 1), Operation("q", 1)],
        [Tensor("outer", 8, (0, 3)), Tensor("inner", 7, (0, 2))],
    )
    problem = Problem("rounded", trace, Platform(16, Fraction(1)))
    assert brute_force(problem) == 18
    monkeypatch.setattr("offcert.formulations.models.interval_data.LARGEST_HEIGHT", 2)
    assert solve(problem).lower_bound <= 18


def test_the_grid_keeps_products_inside_64_bits() -> None:
    operations = [Operation(str(i), 10**14, 0) for i in range(20)]
    tensors = [Tensor(f"x{i}", 10**11 + i, (i, 19 - i)) for i in range(9)]
    trace = Trace(operations, tensors)
    problem = Problem("huge", trace, Platform(trace.least_memory, Fraction(1, 10)))
    upper = longest_makespan(problem)
    grid = choose_grid(problem, upper)
    data = prepare(problem, grid, upper)
    assert grid > 1
    assert data is not None
    assert data.capacity * max(data.latest) <= 4 * LARGEST_ENERGY < 2**63
    outcome = solve(problem, time_limit=2)
    assert "error" not in outcome.details
    assert outcome.lower_bound >= trace.compute_time


def test_too_little_memory_is_a_result() -> None:
    problem = counterexample()
    outcome = solve(problem.with_memory(problem.trace.least_memory - 1))
    assert outcome.status is SolveStatus.INFEASIBLE
    assert outcome.schedule is None
    assert "lacks 1 bytes" in outcome.details["infeasible"]


def test_an_upper_bound_below_the_optimum_is_refuted() -> None:
    outcome = solve(counterexample(), upper_bound=218)
    assert outcome.schedule is None
    assert outcome.lower_bound == 219
    assert outcome.status is SolveStatus.UNKNOWN


def test_an_upper_bound_below_the_hint_proves_the_hint_optimal() -> None:
    problem = counterexample()
    best = solve(problem).schedule
    outcome = solve(problem, hint=best, upper_bound=218)
    assert outcome.status is SolveStatus.OPTIMAL
    assert outcome.schedule == best


@pytest.mark.slow
def test_no_time_keeps_the_hint_and_the_bound() -> None:
    problem = problem_on(seeded(1), cnn_chain(seeded(2), 12), "no-time")
    moves = solve(problem, time_limit=20).schedule
    assert moves is not None
    outcome = solve(problem, time_limit=0.0, hint=moves, lower_bound=17)
    assert outcome.schedule is not None
    assert outcome.objective is not None
    assert outcome.objective <= moves.makespan
    assert 17 <= outcome.lower_bound <= outcome.objective


@pytest.mark.slow
def test_stop_ends_the_search_and_solutions_are_reported_as_they_come() -> None:
    problem = problem_on(seeded(3), cnn_chain(seeded(4), 20), "stop")
    problem = problem.with_memory(problem.trace.least_memory)
    seen: list[Schedule] = []
    found = threading.Event()

    def report(schedule: Schedule) -> None:
        seen.append(schedule)
        found.set()

    outcome = solve(problem, time_limit=60, on_solution=report, stop=found.is_set)
    assert seen
    assert outcome.schedule == seen[-1]
    assert outcome.lower_bound <= seen[-1].makespan


@pytest.mark.slow
def test_interrupting_keeps_the_best_schedule() -> None:
    problem = problem_on(seeded(3), cnn_chain(seeded(4), 20), "interrupt")
    problem = problem.with_memory(problem.trace.least_memory)
    found = threading.Event()

    def interrupt() -> bool:
        if found.is_set():
            raise KeyboardInterrupt
        return False

    outcome = solve(
        problem, time_limit=60, on_solution=lambda schedule: found.set(), stop=interrupt
    )
    assert outcome.schedule is not None
    assert outcome.details.get("interrupted") or outcome.status is SolveStatus.OPTIMAL


def test_a_failing_solver_costs_only_its_contribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("no licence")

    problem = problem_on(seeded(1), cnn_chain(seeded(2), 4), "fails")
    problem = problem.with_memory(problem.trace.least_memory)
    hint = solve(problem).schedule
    monkeypatch.setattr("offcert.formulations.common.cpsat.cp_model.CpSolver.solve", fail)
    outcome = solve(problem, hint=hint)
    assert outcome.schedule == hint
    assert outcome.details["error"] == "RuntimeError: no licence"


def test_nothing_to_evict_is_solved_at_once() -> None:
    trace = Trace([Operation("a", 2), Operation("b", 3)], [Tensor("x", 4, (0, 1))])
    problem = Problem("plain", trace, Platform(4, Fraction(1)))
    outcome = solve(problem)
    assert outcome.status is SolveStatus.OPTIMAL
    assert outcome.schedule == simulate(problem, Plan())
