"""The stage model: a bound on every schedule, exact on a simplex link with the transfers' order."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Link, Platform
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import fractional_bound, required_absent
from offcert.formulations.fluid.milp import fluid_bound
from offcert.formulations.models.interval_cpsat import solve as solve_interval
from offcert.formulations.models.stage_milp import solve
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from support.oracles.schedules import brute_force
from support.problems.random_instances import (
    cnn_chain,
    counterexample,
    mixed_problem,
    random_problem,
    seeded,
)
from support.problems.short_problems import multi_gap_problems, short_problem, short_problems
from support.seeds import by_seeds


@pytest.mark.slow
def test_exact_on_a_simplex_link_and_a_bound_on_a_duplex_one() -> None:
    loose = 0
    for problem, best in short_problems(0, 100):
        outcome = solve(problem, exact=True)
        assert outcome.lower_bound <= best, problem.name
        assert "error" not in outcome.details
        assert outcome.details["exact"] == (problem.platform.link is Link.SIMPLEX)
        if outcome.details["exact"]:
            assert outcome.objective == outcome.lower_bound == best, problem.name
            assert outcome.status is SolveStatus.OPTIMAL
            assert outcome.schedule is not None
            assert check(problem, outcome.schedule) == []
        else:
            loose += outcome.lower_bound < best
    # Directions are not synchronised inside a stretch: the flag is there for a reason.
    assert loose > 0


@pytest.mark.slow
def test_a_second_eviction_is_free_of_an_offload() -> None:
    for problem, best in multi_gap_problems(10_000, 15):
        outcome = solve(problem, exact=True)
        assert outcome.lower_bound <= best, problem.name
        if outcome.details["exact"]:
            assert outcome.objective == outcome.lower_bound == best, problem.name


@pytest.mark.slow
@by_seeds(7000, 7030, 30)
def test_ladder_on_random_problems(seeds: range) -> None:
    """Fractional and fluid bounds, with and without reachable sums, stage model, optimum."""
    above = 0
    for seed in seeds:
        problem = mixed_problem(seed)
        best = brute_force(problem)
        assert best is not None
        bound = solve(problem).lower_bound
        required = required_absent(problem, subset_sum=True)
        fluid = fluid_bound(problem, required=required).value
        assert fractional_bound(problem, subset_sum=True).value <= bound, problem.name
        assert fluid <= bound <= solve(problem, exact=True).lower_bound <= best, problem.name
        above += bound > max(fluid, fractional_bound(problem, subset_sum=True).value)
    assert above >= 4


def test_counterexample_of_the_notes() -> None:
    for solver in ("scipy", "PULP_CBC_CMD"):
        outcome = solve(counterexample(), exact=True, solver=solver)
        assert outcome.lower_bound == outcome.objective == 219


@pytest.mark.slow
def test_bounds_chains_that_are_too_long_for_brute_force() -> None:
    for seed in range(3):
        chain = cnn_chain(seeded(seed), 10)
        trace = chain.trace()
        rate = Fraction(2 * sum(chain.activation), trace.compute_time)
        problem = Problem("chain", chain, Platform(trace.least_memory, rate))
        exact = solve_interval(problem, time_limit=20)
        assert exact.status is SolveStatus.OPTIMAL
        outcome = solve(problem, hint=exact.schedule)
        assert fractional_bound(problem).value <= outcome.lower_bound <= exact.lower_bound


@pytest.mark.parametrize("seed", [157, 423, 617, 882, 1641, 2390])
def test_order_of_transfers_closes_the_gap_that_preemption_leaves(seed: int) -> None:
    """On a simplex link that takes searching: one problem in a hundred of this size has a gap."""
    problem = random_problem(seed, largest=4)
    problem = replace(problem, platform=replace(problem.platform, link=Link.SIMPLEX))
    best = brute_force(problem)
    assert best is not None
    assert solve(problem).lower_bound < best
    assert solve(problem, exact=True).lower_bound == best


def test_memory_at_the_end_of_an_operation_counts() -> None:
    """What is fetched during an operation takes its memory before the operation ends.

    x leaves from 1 to 11; spike fills the memory until 16; only then can x come back.
    """
    operations = [Operation("a", 1), Operation("spike", 5, 10), Operation("c", 1)]
    trace = Trace(operations, [Tensor("x", 10, (0, 2))])
    problem = Problem("end", trace, Platform(10, Fraction(1)))
    outcome = solve(problem)
    assert outcome.lower_bound == outcome.objective == brute_force(problem) == 27


@pytest.mark.parametrize("solver", ["PULP_CBC_CMD", "scipy"])
def test_time_limits_leave_valid_bounds(solver: str) -> None:
    problem, best = short_problem(35, largest=5, factor=1)
    for limit in (0.0, 0.05, 0.2):
        outcome = solve(problem, exact=True, solver=solver, time_limit=limit)
        assert problem.trace.compute_time <= outcome.lower_bound <= best


@pytest.mark.slow
def test_an_upper_bound_at_the_optimum_is_feasible_and_less_is_refuted() -> None:
    for problem, best in short_problems(800, 40):
        if not problem.platform.duplex:
            assert solve(problem, exact=True, upper_bound=best).objective == best, problem.name
            below = solve(problem, exact=True, upper_bound=best - 1)
            assert (below.schedule, below.lower_bound) == (None, best)


def test_too_little_memory_is_a_result() -> None:
    problem = counterexample()
    outcome = solve(problem.with_memory(problem.trace.least_memory - 1))
    assert outcome.status is SolveStatus.INFEASIBLE


def test_an_unknown_solver_is_named() -> None:
    with pytest.raises(InputError, match="'NONE' is unknown"):
        solve(counterexample(), solver="NONE")
