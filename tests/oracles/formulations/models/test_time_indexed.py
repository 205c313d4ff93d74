"""The time-indexed models: exact with what is known and, in the pure form, without; with pauses."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.core.result import SolveStatus
from offcert.core.trace import Trace
from offcert.formulations.common.grid import longest_makespan
from offcert.formulations.common.linear_solvers import CPSAT
from offcert.formulations.models.time_indexed import solve, solve_pausing
from offcert.heuristics.evictions.rules import sequential
from offcert.instances.two_partition import two_partition
from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.simulate import simulate
from support.oracles.fluid import tick_optimum
from support.problems.random_instances import counterexample
from support.problems.short_problems import (
    mixed_short_problem,
    multi_gap_problems,
    pair_problems,
    short_problem,
    simplex_problems,
    stretched_problem,
)

SOLVERS = pytest.mark.parametrize("solver", [CPSAT, "scipy"])


@pytest.mark.slow
@SOLVERS
def test_agrees_with_brute_force(solver: str) -> None:
    """CBC on every thirtieth problem, as it is a process of its own."""
    for number, (problem, best) in enumerate([*pair_problems(), *simplex_problems()]):
        cbc = solver != CPSAT and number % 30 == 0
        outcome = solve(problem, "PULP_CBC_CMD" if cbc else solver, grid=1)
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.status is SolveStatus.OPTIMAL
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []
        assert "error" not in outcome.details


@SOLVERS
def test_only_shorter_schedules_are_looked_for_and_the_last_one_is_returned(solver: str) -> None:
    """From the optimum to the proof that it is one."""
    for seed in range(3200, 3212):
        problem, best = mixed_short_problem(seed, largest=3, factor=3)
        plain = simulate(problem, sequential(problem))
        found = solve(problem, solver, hint=plain)
        assert found.objective == found.lower_bound == best, problem.name
        again = solve(problem, solver, hint=found.schedule)
        assert again.schedule == found.schedule
        assert again.lower_bound == best


@SOLVERS
def test_less_than_the_optimum_is_refuted(solver: str) -> None:
    for seed in range(400, 412):
        problem, best = mixed_short_problem(seed, largest=3, factor=9)
        outcome = solve(problem, solver, grid=1, upper_bound=best - 1)
        assert outcome.schedule is None
        assert outcome.lower_bound == best, problem.name


def test_counterexample_of_the_notes() -> None:
    outcome = solve(counterexample(), grid=1, upper_bound=220)
    assert outcome.lower_bound == outcome.objective == 219


@SOLVERS
def test_times_with_a_common_divisor_are_solved_in_its_multiples(solver: str) -> None:
    for seed in range(801, 804):
        problem, best = stretched_problem(seed, 7)
        outcome = solve(problem, solver)
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.details["grid"] % 7 == 0


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.02, 0.15])
def test_time_limits_leave_valid_bounds(limit: float) -> None:
    """CBC says "infeasible" if its time runs out while it preprocesses: not to be believed."""
    for seed in (155, 35):
        problem, best = short_problem(seed, largest=4, factor=4)
        for solver in ("PULP_CBC_CMD", "scipy", CPSAT):
            outcome = solve(problem, solver, grid=1, time_limit=limit)
            assert problem.trace.compute_time <= outcome.lower_bound <= best
            assert outcome.status is not SolveStatus.INFEASIBLE


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
        for solver in ("scipy", CPSAT):
            assert solve(large, solver, grid=1).lower_bound == best, problem.name


def test_an_unknown_solver_is_named_with_those_that_are_there() -> None:
    with pytest.raises(InputError, match=r"'CPLEX9' is unknown; available are scipy, .*CBC"):
        solve(counterexample(), "CPLEX9")


def test_details_name_solver_version_and_settings() -> None:
    problem, _ = short_problem(0, largest=3, factor=9)
    details = solve(problem, grid=2, time_limit=30).details
    assert details["solver"] == "scipy"
    assert re.fullmatch(r"SciPy \d\S+", details["version"])
    assert (details["gap"], details["grid"], details["time_limit"]) == (0.0, 2, 30)
    details = solve(problem, CPSAT, seed=3).details
    assert (details["solver"], details["seed"], details["threads"]) == ("OR-Tools CP-SAT", 3, 1)


@pytest.mark.slow
@SOLVERS
def test_the_pure_form_agrees_with_brute_force(solver: str) -> None:
    drawn = [mixed_short_problem(seed, largest=3, factor=3) for seed in range(8)]
    longer = 0
    for problem, best in [*drawn, *multi_gap_problems(10_000, 5)]:
        outcome = solve(problem, solver, plain=True)
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.status is SolveStatus.OPTIMAL
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []
        longer += best > problem.trace.compute_time
    assert longer > 3


@SOLVERS
def test_coarse_grids_bound(solver: str) -> None:
    for seed in range(3000, 3012):
        problem, best = mixed_short_problem(seed, largest=3, factor=3)
        for grid in (2, 5):
            outcome = solve(problem, solver, grid=grid, plain=seed % 2 > 0)
            assert outcome.lower_bound <= best, problem.name
            assert outcome.objective is None or outcome.objective >= best


def test_no_bound_comes_from_a_solver_that_had_no_time() -> None:
    """CP-SAT reports 0 before it knows a bound, of an objective that could be less."""
    for seed in range(12):
        problem, best = mixed_short_problem(seed, largest=3, factor=3)
        for limit in (0.0, 0.001, 0.01):
            outcome = solve(problem, CPSAT, time_limit=limit, plain=True)
            assert outcome.lower_bound <= best, problem.name


def pausing(problem: Problem) -> Problem:
    return replace(problem, transfers=Transfers.INTERRUPTIBLE)


@pytest.mark.slow
def test_pausing_transfers_agree_with_a_program_over_ticks() -> None:
    drawn = [mixed_short_problem(seed, largest=3, factor=3) for seed in range(1, 5)]
    less = 0
    for problem, best in [*drawn, *multi_gap_problems(10_000, 2)]:
        relaxed = pausing(problem)
        optimum = tick_optimum(relaxed, longest_makespan(relaxed))
        assert optimum is not None
        less += optimum < best
        outcome = solve_pausing(relaxed, grid=1)
        assert outcome.schedule is not None
        assert check_fluid(relaxed, outcome.schedule) == []
        assert outcome.schedule.makespan == outcome.bound == optimum, problem.name
        whole = solve_pausing(relaxed, CPSAT, grid=1)
        assert whole.bound == problem.trace.compute_time
        assert whole.schedule is not None
        assert check_fluid(relaxed, whole.schedule) == []
        assert whole.schedule.makespan >= optimum
    assert less > 0


def test_pausing_transfers_on_coarse_grids_are_schedules_and_no_bounds() -> None:
    for seed in range(6):
        problem, _ = mixed_short_problem(seed, largest=3, factor=3)
        relaxed = pausing(problem)
        outcome = solve_pausing(relaxed, grid=3)
        assert outcome.bound == problem.trace.compute_time
        if outcome.schedule is not None:
            assert check_fluid(relaxed, outcome.schedule) == []


@pytest.mark.parametrize(("values", "halved"), [((3, 1, 2, 2), True), ((3, 3, 3, 3, 2), False)])
def test_the_reduction_from_two_partition(values: tuple[int, ...], halved: bool) -> None:
    """Theorem 3 of the offloading paper: length 2V exactly if the values can be halved."""
    outcome = solve_pausing(two_partition(values, "interruptible"), grid=1)
    assert outcome.schedule is not None
    assert outcome.schedule.makespan == outcome.bound
    assert (outcome.bound == sum(values)) == halved


def test_what_is_too_fine_is_refused_with_a_grid_that_would_do() -> None:
    values = [10**6, 10**6]
    with pytest.raises(InputError, match="grid must be at least about"):
        solve(two_partition(values), grid=1)
    with pytest.raises(InputError, match="grid must be at least about"):
        solve_pausing(two_partition(values, "interruptible"), grid=1)
    with pytest.raises(InputError, match="grid"):
        solve_pausing(two_partition([1, 1], "interruptible"), grid=0)


@pytest.mark.parametrize("transfers", [Transfers.ATOMIC, Transfers.INTERRUPTIBLE])
@SOLVERS
def test_the_clock_is_looked_at_while_the_model_is_built(solver: str, transfers: Transfers) -> None:
    problem = replace(two_partition([10**3] * 12), transfers=transfers)
    ask = solve if transfers is Transfers.ATOMIC else solve_pausing
    outcome = ask(problem, solver, time_limit=0.0)
    assert outcome.details["error"] == "LateError: no time was left to build the model"
    assert outcome.schedule is None
