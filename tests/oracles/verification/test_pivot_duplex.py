"""The pivot program on links that run both ways, found and run again, against brute force."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.labels.pivot import PivotOutcome, pivot_bound
from offcert.formulations.labels.pivot.bound import PivotSearch
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.verification.document import verify
from offcert.verification.pivot.check import pivot_fault
from support.oracles.schedules import brute_force
from support.problems.claims import confirm
from support.problems.nested import WHERE_BOTH_WAYS_PAY, both_ways, duplex_problems, spiky


def bound(problem: Problem, upper: int, pivots: list[int] | None = None) -> PivotOutcome:
    generous: dict[str, Any] = {"time_limit": 60.0, "max_labels": 10**6}
    return pivot_bound(problem, upper_bound=upper, pivots=pivots, **generous)


def assert_right(problem: Problem, optimum: int, outcome: PivotOutcome) -> None:
    assert outcome.lower_bound <= optimum
    assert pivot_fault(problem, outcome.lower_bound, outcome.proof) is None
    if outcome.schedule is not None:
        assert check(problem, outcome.schedule) == []
        assert outcome.schedule.makespan >= optimum
    assert not outcome.complete or outcome.schedule is None or outcome.lower_bound == optimum


@pytest.mark.parametrize("problem", duplex_problems(50, 1000, 4), ids=lambda one: one.name)
def test_no_pivot_exceeds_the_optimum_and_the_best_one_attains_it(problem: Problem) -> None:
    slows = problem.platform.slows
    optimum, alone = (
        brute_force(problem),
        brute_force(replace(problem, platform=problem.platform.alone)),
    )
    assert optimum is not None
    assert alone is not None
    best = 0
    for pivot in range(len(problem.trace)):
        for upper in (optimum, 3 * optimum + 9):
            outcome = bound(problem, upper, [pivot])
            assert_right(problem, optimum, outcome)
            best = max(best, outcome.lower_bound)
        # It is about the rates alone.
        assert not confirm(problem, pivot, 2 * alone, 2 * alone, alone + 1)
    assert best == alone <= optimum
    assert slows or best == optimum


@pytest.mark.slow
@pytest.mark.parametrize("problem", duplex_problems(36, 3000, 6), ids=lambda one: one.name)
def test_no_pivot_exceeds_the_optimum_of_larger_problems(problem: Problem) -> None:
    optimum = brute_force(problem)
    assert optimum is not None
    for pivot in range(len(problem.trace)):
        assert_right(problem, optimum, bound(problem, 3 * optimum + 9, [pivot]))
        for front in (0, optimum // 3, 2 * optimum // 3, optimum, 3 * optimum):
            for once in ((), range(len(problem.trace.gaps))):
                back = 2 * optimum - front
                assert not confirm(problem, pivot, front, back, optimum + 1, once=once)


@pytest.mark.slow
def test_the_bound_before_completion_never_exceeds_the_optimum() -> None:
    for problem in duplex_problems(12, 300, 5):
        optimum = brute_force(problem)
        assert optimum is not None
        for labels in (1, 5, 25, 125):
            outcome = pivot_bound(
                problem, upper_bound=9 * optimum, time_limit=60, max_labels=labels
            )
            assert_right(problem, optimum, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3060))
def test_no_pivot_exceeds_the_optimum_where_memory_is_needed_in_many_places(seed: int) -> None:
    problem = both_ways(spiky(seed))
    optimum = brute_force(problem)
    assert optimum is not None
    for pivot in range(len(problem.trace)):
        assert_right(problem, optimum, bound(problem, 3 * optimum, [pivot]))
        above = max(optimum, problem.trace.compute_time) + 1
        assert not confirm(problem, pivot, 2 * optimum, 2 * optimum, above)


@pytest.mark.parametrize("seed", WHERE_BOTH_WAYS_PAY)
def test_a_proof_for_one_link_is_none_for_the_other(seed: int) -> None:
    """What returns while something leaves takes its turn on a simplex link only."""
    simplex = spiky(seed)
    duplex = both_ways(simplex)
    most, least = brute_force(simplex), brute_force(duplex)
    assert most is not None
    assert least is not None
    assert least < most
    best = 0
    for pivot in range(len(simplex.trace)):
        outcome = bound(simplex, most, [pivot])
        assert pivot_fault(simplex, most, outcome.proof) is None
        assert pivot_fault(duplex, least + 1, outcome.proof) is not None
        assert not confirm(duplex, pivot, 2 * most, 2 * most, least + 1)
        both = bound(duplex, most, [pivot])
        assert_right(duplex, least, both)
        best = max(best, both.lower_bound)
    assert best == least


@pytest.mark.slow
def test_a_schedule_that_the_link_slows_down_leaves_the_bound_at_its_length_without() -> None:
    """The caller's best schedule takes 25 ticks, one of 24 was found at the rates alone."""
    operations = map(Operation, "abcdef", (1, 2, 0, 3, 0, 2), (14, 14, 14, 4, 9, 0))
    uses = ((-1, 5), (0, 5), (0, 1, 2, 5), (2, 3, 5), (3, 5))
    tensors = [Tensor(f"t{n}", 1 if n == 4 else 5, each) for n, each in enumerate(uses)]
    rate = Fraction(1)
    platform = Platform(24, rate, Link.DUPLEX, None, 1, rate / 2, rate * 2 / 3)
    problem = Problem("slowed", Trace(operations, tensors), platform)
    alone = replace(problem, platform=platform.alone)
    assert brute_force(alone) == 24
    search = PivotSearch(alone, max_labels=10**5)
    first, second = (search.improve(25, 60.0) for _ in range(2))
    assert first.schedule is not None
    assert first.lower_bound == second.lower_bound == 24
    assert (first.complete, second.complete) == (True, False)
    for outcome in (first, second):
        assert pivot_fault(problem, 24, outcome.proof) is None
    certificate = certify(problem, time_limit=3.0, attested=False)
    assert certificate.result.lower_bound == 24
    assert verify(certificate).valid
