"""The pure time-indexed models: exact without windows, hints or bounds, also with pauses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offcert.core.errors import InputError
from offcert.core.result import SolveStatus
from offcert.formulations.common.grid import longest_makespan
from offcert.formulations.models.pure_time_indexed import CPSAT, solve_pausing, solve_whole
from offcert.instances.two_partition import two_partition
from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from support.oracles.fluid import tick_optimum
from support.problems.short_problems import mixed_short_problem, multi_gap_problems


@pytest.mark.slow
@pytest.mark.parametrize("solver", [CPSAT, "scipy"])
def test_whole_transfers_agree_with_brute_force(solver: str) -> None:
    drawn = [mixed_short_problem(seed, largest=3, factor=3) for seed in range(14)]
    longer = 0
    for problem, best in [*drawn, *multi_gap_problems(10_000, 5)]:
        outcome = solve_whole(problem, solver)
        assert outcome.objective == outcome.lower_bound == best, problem.name
        assert outcome.status is SolveStatus.OPTIMAL
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []
        longer += best > problem.trace.compute_time
    assert longer > 3


@pytest.mark.parametrize("solver", [CPSAT, "scipy"])
def test_coarse_grids_bound(solver: str) -> None:
    for seed in range(3000, 3012):
        problem, best = mixed_short_problem(seed, largest=3, factor=3)
        for grid in (2, 5):
            outcome = solve_whole(problem, solver, grid=grid)
            assert outcome.lower_bound <= best, problem.name
            assert outcome.objective is None or outcome.objective >= best


def test_no_bound_comes_from_a_solver_that_had_no_time() -> None:
    """CP-SAT reports 0 before it knows a bound, of an objective that could be less."""
    for seed in range(12):
        problem, best = mixed_short_problem(seed, largest=3, factor=3)
        for limit in (0.0, 0.001, 0.01):
            outcome = solve_whole(problem, CPSAT, time_limit=limit)
            assert outcome.lower_bound <= best, problem.name


def pausing(problem: Problem) -> Problem:
    return replace(problem, transfers=Transfers.INTERRUPTIBLE)


@pytest.mark.slow
def test_pausing_transfers_agree_with_a_program_over_ticks() -> None:
    drawn = [mixed_short_problem(seed, largest=3, factor=3) for seed in range(4)]
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
        solve_whole(two_partition(values), grid=1)
    with pytest.raises(InputError, match="grid must be at least about"):
        solve_pausing(two_partition(values, "interruptible"), grid=1)
    with pytest.raises(InputError, match="grid"):
        solve_pausing(two_partition([1, 1], "interruptible"), grid=0)
