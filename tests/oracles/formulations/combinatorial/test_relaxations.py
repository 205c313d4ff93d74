"""The ladder of bounds: hand-computed values, inequalities, and the independent re-computation."""

import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.formulations.combinatorial import relaxations
from offcert.formulations.combinatorial.relaxations import (
    fractional_bound,
    heads_and_tails,
    infeasibility,
    least_subset_sum,
    prop3_bound,
    required_absent,
)
from offcert.questions.schedule.problem import Problem
from offcert.verification import absence
from offcert.verification.absence import cheapest_cover, least_memory
from offcert.verification.fractional import recompute
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem


def two_stage_problem() -> Problem:
    """x0 of 10 bytes must be away while F_1 takes 15 of 20 bytes; everything else fits."""
    chain = Chain([3, 4, 1], [1, 4, 2], [10, 2, 0, 0], [0, 0, 0, 0], [0, 13, 0])
    return Problem("p", chain, Platform(20, Fraction(2)))


def test_hand_computed_bounds() -> None:
    problem = two_stage_problem()
    # demand at F_1: x0 10 + x1 2 + x2 0 + workspace 13 = 25, 5 too many; no other operation.
    assert required_absent(problem) == [0, 5, 0, 0, 0, 0]
    assert required_absent(problem, subset_sum=True) == [0, 10, 0, 0, 0, 0]
    # 15 ticks of computing; moving 5 bytes both ways takes 5.
    assert prop3_bound(problem).value == 15
    # x0 is free to leave from 0 on: 2.5 ticks, hidden behind F_0; 5 ticks if whole.
    times = heads_and_tails(problem, required_absent(problem, subset_sum=True))
    assert times.heads[1] == 5
    assert times.tails[1] == 4 + 1 + 2 + 4 + 1
    assert fractional_bound(problem).value == 15
    assert fractional_bound(problem, subset_sum=True).value == 17
    assert brute_force(problem) == 17


def test_infeasible_memory_names_the_operation_and_the_bytes() -> None:
    problem = two_stage_problem()
    assert infeasibility(problem.with_memory(15)) is None
    found = infeasibility(problem.with_memory(14))
    assert found is not None
    assert (found.operation, found.name, found.needed, found.lacking) == (1, "F1", 15, 1)


@pytest.mark.parametrize("seed", range(120))
def test_no_bound_exceeds_the_optimum_and_rounding_never_weakens(seed: int) -> None:
    problem = mixed_problem(seed, 4)
    optimum = brute_force(problem)
    assert (optimum is None) == (infeasibility(problem) is not None)
    if optimum is None:
        return
    prop3, rounded = prop3_bound(problem).value, prop3_bound(problem, True).value
    fluid, whole = fractional_bound(problem).value, fractional_bound(problem, True).value
    assert problem.trace.compute_time <= prop3 <= fluid <= whole <= optimum
    assert prop3 <= rounded <= whole


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 10**9))
def test_the_verifier_computes_the_same_with_other_code(seed: int) -> None:
    problem = mixed_problem(seed, 8)
    assert least_memory(problem)[0] == problem.trace.least_memory
    if infeasibility(problem) is not None:
        return
    for rounding in (False, True):
        for bound in (prop3_bound(problem, rounding), fractional_bound(problem, rounding)):
            assert recompute(bound.method, problem) == bound.value


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=9), st.data())
def test_subset_sums_are_exact_or_below(sizes: list[int], data: st.DataObject) -> None:
    amount = data.draw(st.integers(0, sum(sizes)))
    sums = {sum(part) for count in range(len(sizes) + 1) for part in combinations(sizes, count)}
    exact = min(total for total in sums if total >= amount)
    found = least_subset_sum(tuple(sizes), amount)
    assert amount <= found <= exact
    assert found == cheapest_cover(sizes, amount)
    if sum(sizes) <= relaxations.FINEST:
        assert found == exact


def test_a_coarse_subset_sum_is_still_a_lower_bound_and_reproducible() -> None:
    rng = random.Random(7)
    for _ in range(20):
        sizes = tuple(rng.randint(10**8, 10**9) for _ in range(10))
        amount = rng.randint(1, sum(sizes))
        sums = [sum(part) for count in range(11) for part in combinations(sizes, count)]
        exact = min(total for total in sums if total >= amount)
        found = least_subset_sum(sizes, amount)
        assert amount <= found <= exact
        assert exact - found <= exact * 1e-3
        assert found == cheapest_cover(list(sizes), amount)


def every_sum(sizes: tuple[int, ...]) -> set[int]:
    sums = {0}
    for size in sizes:
        sums |= {total + size for total in sums}
    return sums


@pytest.mark.slow
def test_many_sizes_take_the_short_cuts_and_none_of_them_changes_a_sum() -> None:
    """Both programs, on sizes of which nearly every amount is a sum, and on sizes full of holes."""
    rng = random.Random(11)
    holes = hits = 0
    for trial in range(120):
        step = (1, 30, 70)[trial % 3]
        sizes = tuple(
            sorted(
                step * rng.randint(1, 40) + rng.choice((0, 0, 1))
                for _ in range(90 - 35 * (trial % 3))
            )
        )
        sums = every_sum(sizes)
        for amount in (1, rng.randint(1, sum(sizes)), rng.randint(1, sum(sizes)), sum(sizes)):
            exact = min(total for total in sums if total >= amount)
            assert least_subset_sum(sizes, amount) == exact
            assert cheapest_cover(list(sizes), amount) == exact
            hits += exact == amount
            holes += exact > amount
    assert hits > 100
    assert holes > 50


def test_short_cuts_claim_nothing_that_is_no_sum() -> None:
    """Each says that an amount is a sum only if it is one; how often it does is its worth."""
    rng = random.Random(12)
    said = [0, 0]
    for _ in range(300):
        sizes = [rng.randint(1, 12) * rng.choice((2, 3, 5)) for _ in range(rng.randint(1, 12))]
        sums = every_sum(tuple(sizes))
        amount = rng.randint(1, sum(sizes))
        units = np.array(sizes)
        found = relaxations._is_sum(sizes, amount), absence._reached(units, amount, amount)
        for number, reached in enumerate(found):
            if reached:
                assert amount in sums
                said[number] += 1
    assert min(said) > 40
