"""The plain re-run of pivot bounds: it confirms what is true and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.labels.pivot import PivotOutcome, pivot_bound
from offcert.questions.schedule.problem import Problem
from offcert.verification.findings import recheck
from offcert.verification.pivot.check import pivot_fault
from support.oracles.schedules import brute_force
from support.problems.claims import confirm
from support.problems.nested import nested_problems
from support.problems.random_instances import counterexample


def bound(problem: Problem, upper: int, pivot: int | None = None) -> PivotOutcome:
    return pivot_bound(
        problem,
        upper_bound=upper,
        time_limit=60,
        max_labels=10**6,
        pivots=None if pivot is None else [pivot],
    )


def confirms(problem: Problem, outcome: PivotOutcome) -> bool:
    return pivot_fault(problem, outcome.lower_bound, outcome.proof) is None


def limits_of(outcome: PivotOutcome) -> tuple[int, int, int]:
    return outcome.proof.pivot, outcome.proof.front_limit, outcome.proof.back_limit


@pytest.mark.parametrize("problem", nested_problems(40, 0, 4), ids=lambda problem: problem.name)
def test_what_the_program_proves_is_confirmed_at_every_pivot(problem):
    optimum = brute_force(problem)
    for pivot in range(len(problem.trace)):
        for upper in (optimum - 2, optimum, optimum + 3, 4 * optimum + 9):
            assert confirms(problem, bound(problem, upper, pivot))


@pytest.mark.slow
@pytest.mark.parametrize("problem", nested_problems(40, 500, 4), ids=lambda problem: problem.name)
def test_no_advice_makes_a_false_bound_true(problem):
    optimum = brute_force(problem)
    everything = range(len(problem.trace.gaps))
    for pivot in range(len(problem.trace)):
        for front in (0, optimum // 3, 2 * optimum // 3, optimum, 3 * optimum):
            for once in ((), everything):
                back = 2 * optimum - front
                assert not confirm(problem, pivot, front, back, optimum + 1, once=once)


def test_what_is_written_during_a_slow_return_may_leave_right_after_it():
    problem = counterexample().with_bandwidth(Fraction(2), Fraction(1, 2))
    assert brute_force(problem) == 288
    for pivot in range(len(problem.trace)):
        assert confirms(problem, bound(problem, 10_000, pivot))
        assert not confirm(problem, pivot, 288, 288, 289)


def waiting_problem() -> tuple[Problem, PivotOutcome]:
    """Return a problem whose optimum exceeds its compute time, so that a bound needs a search."""
    chain = Chain((3, 5, 4, 6), (6, 9, 8, 11), (9, 7, 9, 5, 1), (1, 1, 1, 1, 1))
    problem = Problem("waiting", chain, Platform(chain.trace().least_memory, Fraction(1, 3)))
    outcome = bound(problem, 10**4)
    assert outcome.lower_bound == brute_force(problem) > problem.trace.compute_time
    return problem, outcome


def test_limits_that_are_too_small_are_not_enough():
    problem, outcome = waiting_problem()
    assert confirms(problem, outcome)
    assert not confirms(problem, replace(outcome, lower_bound=outcome.lower_bound + 1))
    pivot, front_limit, back_limit = limits_of(outcome)
    assert confirm(problem, pivot, front_limit, back_limit, outcome.lower_bound)
    for limits in ((0, 0), (-1, back_limit), (front_limit, -1)):
        assert not confirm(problem, pivot, *limits, outcome.lower_bound)


def test_a_search_that_is_too_large_confirms_nothing():
    problem, outcome = waiting_problem()
    assert not confirm(problem, *limits_of(outcome), outcome.lower_bound, max_labels=1)


def test_bounds_that_need_no_search():
    problem = counterexample()
    compute = problem.trace.compute_time
    assert confirm(problem, -1, -1, -1, compute)
    assert not confirm(problem, -1, -1, -1, compute + 1)
    infeasible = problem.with_memory(problem.trace.least_memory - 1)
    assert confirm(infeasible, -1, -1, -1, 10**9)


def test_problems_of_another_kind_are_not_confirmed():
    problem, outcome = waiting_problem()
    several = Trace(
        [Operation(f"o{i}", 1) for i in range(6)],
        [Tensor("a", 2, (0, 2, 5)), Tensor("w", 1, (1,)), Tensor("v", 1, (4,))],
    )
    assert not confirms(replace(problem, transfers="fractional"), outcome)
    assert not confirm(Problem("several", several, Platform(2, Fraction(1))), 3, 99, 99, 7)


def searched_problems(seed: int) -> Iterator[tuple[Problem, int, dict[str, Any]]]:
    """Yield problems whose bound takes a search, with the optimum and the details of its proof."""
    for problem in nested_problems(25, seed, 5):
        optimum = brute_force(problem)
        assert optimum is not None
        outcome = pivot_bound(problem, upper_bound=2 * optimum, time_limit=60, max_labels=10**6)
        if outcome.proof.ends is not None and outcome.lower_bound > problem.trace.compute_time:
            yield problem, optimum, outcome.proof.write()


@pytest.mark.slow
def test_ends_that_are_too_long_are_refused_with_the_place() -> None:
    refused = 0
    for problem, optimum, details in searched_problems(2500):
        assert recheck(Bound("pivot", optimum, Evidence.PROVED, details), problem) is None
        for side in ("head", "tail"):
            for more in (1, optimum):
                ends = details["ends"] | {side: details["ends"][side] + more}
                forged = details | {"ends": ends}
                fault = recheck(Bound("pivot", optimum, Evidence.PROVED, forged), problem)
                # A relaxation may be too weak by a tick, but never by a whole step.
                if more == optimum:
                    assert fault is not None
                    assert f"details.ends.{side} is too much" in fault
                refused += fault is not None
    assert refused > 35


@pytest.mark.slow
def test_no_ends_make_more_than_the_optimum_of_it() -> None:
    claims = 0
    for problem, optimum, proof in searched_problems(8100):
        claim = optimum + 1
        for head in range(0, claim + 1, max(1, claim // 12)):
            tail = claim - head
            ends = proof["ends"] | {"head": head, "tail": tail}
            # With these limits nothing would be left to search.
            details = proof | {"ends": ends, "front_limit": head - 1, "back_limit": tail - 1}
            assert recheck(Bound("pivot", claim, Evidence.PROVED, details), problem) is not None
            claims += 1
    assert claims > 120
