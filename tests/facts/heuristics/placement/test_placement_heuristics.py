"""Simple ways to place residences: by hand, and never below the least pool."""

from collections.abc import Callable

import pytest

from offcert.heuristics.placement.in_order import (
    best_fit,
    first_fit,
    greedy_by_area,
    greedy_by_size,
    modnn_pool,
    placed_in_order,
)
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    Residence,
    placement_faults,
)
from support.oracles.placement import least_pool
from support.problems.placements import random_placement_problem
from support.seeds import by_seeds

Heuristic = Callable[[PlacementProblem], Placement]
ALL = [
    first_fit,
    best_fit,
    modnn_pool,
    greedy_by_size,
    greedy_by_area,
]

# Blocks of 5, 1, 3, 1, 4 and 1 fill the pool; the first, third and fifth end: holes of 5, 3 and 4.
HOLES = [
    Residence("a", 5, 0, 2),
    Residence("-", 1, 0, 9),
    Residence("b", 3, 0, 2),
    Residence("-", 1, 0, 9),
    Residence("c", 4, 0, 2),
    Residence("-", 1, 0, 9),
]


def holes(*sizes: int) -> PlacementProblem:
    rows = [Residence(f"new{k}", size, 2, 5) for k, size in enumerate(sizes)]
    return PlacementProblem("holes", [*HOLES, *rows])


@pytest.mark.parametrize("heuristic", ALL)
@by_seeds(0, 40, 20)
def test_pools_are_valid_and_at_least_the_least(seeds: range, heuristic: Heuristic) -> None:
    for seed in seeds:
        problem = random_placement_problem(seed, most=7, span=8)
        placement = heuristic(problem)
        assert placement_faults(problem, placement) == []
        assert placement.pool(problem) >= least_pool(problem)


@pytest.mark.parametrize(
    ("heuristic", "size", "address"),
    [
        (first_fit, 3, 0),
        (best_fit, 3, 6),
        (best_fit, 2, 6),
        (modnn_pool, 4, 10),
        (modnn_pool, 2, 0),
        (modnn_pool, 6, 15),
    ],
)
def test_which_hole_is_taken(heuristic: Heuristic, size: int, address: int) -> None:
    assert heuristic(holes(size)).addresses[-1] == address


def test_greedy_orders() -> None:
    problem = PlacementProblem(
        "orders",
        [Residence("long", 1, 0, 9), Residence("large", 5, 2, 4), Residence("area", 4, 3, 7)],
    )
    assert greedy_by_size(problem).addresses == (9, 0, 5)
    assert greedy_by_area(problem).addresses == (9, 4, 0)
    assert placed_in_order(problem, [2, 0, 1]).addresses == (4, 5, 0)
