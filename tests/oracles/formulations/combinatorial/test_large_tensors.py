"""The bound with large tensors as wholes: against all subsets, its neighbours, the optimum."""

import random
from fractions import Fraction
from itertools import combinations

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.formulations.combinatorial.large_tensors import (
    large_tensors_bound,
    required_of_large,
    sizes_worth_counting,
)
from offcert.formulations.combinatorial.relaxations import (
    fractional_bound,
    infeasibility,
    required_absent,
)
from offcert.questions.schedule.problem import Problem
from support.oracles.schedules import brute_force
from support.problems.long_problems import long_problem
from support.problems.random_instances import mixed_problem


def least_by_subsets(problem: Problem, operation: int, smallest: int) -> int:
    """Try all subsets of the large tensors, and fill up with small ones byte by byte."""
    trace = problem.trace
    need = required_absent(problem)[operation]
    sizes = [trace.gap_size(gap) for gap in trace.gaps_over[operation]]
    large = [size for size in sizes if size >= smallest]
    sand = sum(sizes) - sum(large)
    return min(
        max(need, sum(part))
        for count in range(len(large) + 1)
        for part in combinations(large, count)
        if sum(part) + sand >= need
    )


@pytest.mark.parametrize("seed", range(80))
def test_no_more_is_required_than_some_subset_with_sand_gives(seed: int) -> None:
    problem = mixed_problem(seed, 7)
    if infeasibility(problem) is not None:
        return
    for smallest in sorted({1, *problem.trace.gap_sizes}):
        found = required_of_large(problem, smallest)
        assert found == [
            least_by_subsets(problem, operation, smallest)
            for operation in range(len(problem.trace))
        ]


@pytest.mark.parametrize("seed", range(80))
def test_the_bound_lies_between_the_fractional_ones_and_below_the_optimum(seed: int) -> None:
    problem = mixed_problem(seed, 4)
    optimum = brute_force(problem)
    if optimum is None:
        return
    plain, whole = fractional_bound(problem).value, fractional_bound(problem, True).value
    for smallest in sorted({1, *problem.trace.gap_sizes}):
        assert plain <= large_tensors_bound(problem, smallest).value <= whole <= optimum
    # With all tensors large nothing is sand.
    assert large_tensors_bound(problem, 1).value == whole


def test_a_few_odd_small_tensors_do_not_hide_what_large_ones_cannot_make_up() -> None:
    """Tensors of 1000 and one of 1 byte; 1500 must leave: 2000 do, with the sand 1 byte more."""
    sizes = [1000, 1000, 1000, 1, 0, 0]
    chain = Chain([1] * 5, [1] * 5, sizes, [0] * 6)
    problem = Problem("p", chain, Platform(1501, Fraction(1)))
    assert max(required_absent(problem)) == 1500
    assert max(required_of_large(problem, 1000)) == 2000
    assert sizes_worth_counting(problem)[0] == 1
    assert 1000 in sizes_worth_counting(problem)


def test_sizes_whose_tables_would_be_long_are_not_tried() -> None:
    rng = random.Random(3)
    problem = long_problem(3, 2_000, 800)
    tried = sizes_worth_counting(problem)
    assert 0 < len(tried) <= 3
    assert tried == sorted(tried)
    # A tenth of the sizes are odd: as wholes they would need tables of a bit for each byte.
    assert min(tried) > min(problem.trace.gap_sizes)
    value = large_tensors_bound(problem, rng.choice(tried)).value
    assert value >= fractional_bound(problem).value
