"""Bounds that go through exact sums: against brute force, and found and verified alike."""

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence
from offcert.formulations.combinatorial.exact_sums import exact_sums_bound
from offcert.formulations.combinatorial.large_tensors import large_tensors_bound
from offcert.formulations.combinatorial.relaxations import fractional_bound
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.findings import recheck
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem
from support.seeds import by_seeds


@pytest.mark.slow
@by_seeds(0, 400, 50)
def test_no_schedule_is_shorter_and_verification_agrees(seeds: range) -> None:
    better = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        if problem.transfers is not Transfers.ATOMIC:
            continue
        optimum = brute_force(problem)
        if optimum is None:
            continue
        for smallest in (1, 3):
            bound = exact_sums_bound(problem, smallest)
            if bound is None:
                continue
            assert large_tensors_bound(problem, smallest).value <= optimum
            assert bound.value <= optimum, seed
            assert recheck(bound, problem) is None, seed
            assert recheck(replace(bound, value=optimum + 1), problem) is not None, seed
            better += smallest == 1 and bound.value > fractional_bound(problem, True).value
    assert better >= 1


def one_small_tensor() -> Problem:
    """The spike needs 9 bytes: 4 + 4 and a small one, which must return at once, or 12."""
    chain = Chain(
        forward=(9, 9, 9, 1, 1),
        backward=(9, 9, 9, 1, 1),
        activation=(4, 4, 4, 1, 1, 1),
        gradient=(0,) * 6,
        forward_workspace=(0, 0, 0, 0, 0),
        backward_workspace=(0, 0, 0, 0, 9),
    )
    return Problem("one small", chain, Platform(15, Fraction(1, 2)))


def test_what_is_needed_soon_costs_the_time_of_its_return() -> None:
    problem = one_small_tensor()
    bound = exact_sums_bound(problem)
    assert bound is not None
    assert fractional_bound(problem, True).value < bound.value <= (brute_force(problem) or 0)
    assert recheck(bound, problem) is None


def test_what_is_more_than_it_says_is_refused_and_so_is_what_says_nothing() -> None:
    problem = one_small_tensor()
    bound = exact_sums_bound(problem)
    assert bound is not None
    assert "absent" in str(recheck(replace(bound, value=bound.value + 1), problem))
    for details, fault in (
        ({}, "pivot"),
        ({"pivot": 99, "smallest": 1}, "an operation"),
        ({"pivot": bound.details["pivot"], "smallest": 99}, "no tensors"),
        ({"pivot": bound.details["pivot"], "smallest": 1, "more": 1}, "more"),
    ):
        forged = Bound("exact-sums", bound.value, Evidence.PROVED, details)
        assert fault in str(recheck(forged, problem))
    relaxed = replace(problem, transfers=Transfers.INTERRUPTIBLE)
    assert "interruptible" in str(recheck(bound, relaxed))
    tight = problem.with_memory(problem.trace.least_memory - 1)
    assert "no schedule" in str(recheck(bound, tight))
