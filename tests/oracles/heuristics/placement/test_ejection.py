"""The search by ejection: valid, never below the least pool, and often at it."""

import numpy as np
import pytest

from offcert.heuristics.placement.ejection import (
    PLACED,
    WAITING,
    WAITS,
    BoxTable,
    OpenPlacement,
    eject,
    ejection_search,
    fill,
    new_pool,
)
from offcert.heuristics.placement.in_order import greedy_by_area
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    Residence,
    placement_faults,
)
from support.oracles.placement import least_pool
from support.problems.placements import random_placement_problem
from support.seeds import by_seeds


@by_seeds(0, 40, 20)
def test_pools_are_valid_and_at_least_the_least(seeds: range) -> None:
    least = 0
    for seed in seeds:
        problem = random_placement_problem(seed, most=7, span=8)
        found: list[Placement] = []
        best = ejection_search(problem, time_limit=0.02, seed=seed, found=found.append)
        for placement in [*found, best]:
            assert placement_faults(problem, placement) == []
        pools = [placement.pool(problem) for placement in found]
        assert pools == sorted(set(pools), reverse=True)
        optimum = least_pool(problem)
        assert optimum <= best.pool(problem) <= greedy_by_area(problem).pool(problem)
        least += best.pool(problem) == optimum
    assert least >= 16


def test_a_stack_that_ends_in_time_is_undone() -> None:
    rows = [Residence(f"r{k}", 3, 2 * k, 2 * k + 2) for k in range(6)]
    problem = PlacementProblem("one at a time", rows)
    stacked = Placement(3 * k for k in range(6))
    best = ejection_search(problem, time_limit=60.0, hint=stacked)
    assert best.addresses == (0,) * 6


def test_it_ends_within_a_capacity() -> None:
    problem = PlacementProblem(
        "one at a time", [Residence(f"r{k}", 4, k, k + 1) for k in range(5)], 11, 4
    )
    found: list[Placement] = []
    hint = Placement(4 * k for k in range(5))
    ejection_search(problem, time_limit=60.0, hint=hint, found=found.append)
    *before, last = (placement.pool(problem) for placement in found)
    assert last <= 11 < min(before, default=20)
    assert placement_faults(problem, found[-1]) == []


CAPACITY = 12


def random_boxes(seed: int, count: int = 30) -> BoxTable:
    random = np.random.default_rng(seed)
    size = random.integers(1, 9, count)
    first = random.integers(0, 20, count)
    last = first + random.integers(1, 8, count)
    # No two sums of weights are equal.
    value = size * (last - first) + 2.0 ** -np.arange(1, count + 1)
    return BoxTable(size, first, last, value)


def least_weight(boxes: BoxTable, pool: OpenPlacement, box: int) -> float:
    """Return how little may be in the way of a residence, at any address at all."""
    placed = np.flatnonzero(pool.address != WAITS)
    meets = (boxes.first[placed] < boxes.last[box]) & (boxes.last[placed] > boxes.first[box])
    near = placed[meets]
    low, high = pool.address[near], pool.address[near] + boxes.size[near]
    return min(
        pool.weight[near][(low < address + boxes.size[box]) & (high > address)].sum()
        for address in range(CAPACITY - boxes.size[box] + 1)
    )


@pytest.mark.parametrize("seed", range(14, 20))
def test_a_step_ejects_the_least_and_leaves_nothing_overlapping(seed: int) -> None:
    boxes = random_boxes(seed)
    count = len(boxes.size)
    pool = new_pool(boxes)
    fill(boxes, pool, np.full(count, WAITS, np.int64), CAPACITY)
    for step in range(150):
        waiting = pool.waiting[: pool.counts[WAITING]].tolist()
        box = max(waiting, key=lambda each: pool.weight[each])
        least, weight = least_weight(boxes, pool, box), pool.weight.copy()
        eject(boxes, pool, CAPACITY, 1, step)
        ejected = set(pool.waiting[: pool.counts[WAITING]].tolist()) - set(waiting)
        assert weight[list(ejected)].sum() == pytest.approx(least)
        assert pool.address[box] != WAITS
        placed = np.flatnonzero(pool.address != WAITS)
        assert (pool.counts[PLACED], pool.counts[WAITING]) == (len(placed), count - len(placed))
        for order in (pool.by_address, pool.by_top):
            assert sorted(order[: len(placed)]) == placed.tolist()
        rows = [
            Residence("", int(boxes.size[b]), int(boxes.first[b]), int(boxes.last[b]))
            for b in placed
        ]
        part = PlacementProblem("placed", rows, CAPACITY)
        assert placement_faults(part, Placement(int(pool.address[b]) for b in placed)) == []
