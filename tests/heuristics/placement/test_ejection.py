"""The search by ejection: valid, never below the least pool, and often at it."""

import numpy as np
from placement_cases import random_placement_problem
from placement_oracle import least_pool

from offcert.core.placement import Placement, PlacementProblem, Residence
from offcert.heuristics.placement.ejection import ejection_search
from offcert.heuristics.placement.ejection_kernel import (
    PLACED,
    WAITING,
    WAITS,
    Boxes,
    eject,
    fill,
    new_pool,
)
from offcert.heuristics.placement.greedy import greedy_by_area
from offcert.verify.placement.overlap import placement_faults


def test_pools_are_valid_and_at_least_the_least() -> None:
    least = 0
    for seed in range(40):
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
    assert least >= 38


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


def test_between_steps_nothing_overlaps_and_nothing_is_lost() -> None:
    random = np.random.default_rng(0)
    size = random.integers(1, 9, 30)
    first = random.integers(0, 20, 30)
    last = first + random.integers(1, 8, 30)
    boxes = Boxes(size, first, last, (size * (last - first)).astype(float))
    pool = new_pool(boxes)
    fill(boxes, pool, np.full(30, WAITS, np.int64), 12)
    for seed in range(200):
        eject(boxes, pool, 12, 1, seed)
        placed = np.flatnonzero(pool.address != WAITS)
        assert (pool.counts[PLACED], pool.counts[WAITING]) == (len(placed), 30 - len(placed))
        assert sorted(pool.by_address[: len(placed)]) == placed.tolist()
        rows = [Residence("", int(size[b]), int(first[b]), int(last[b])) for b in placed]
        part = PlacementProblem("placed", rows, 12)
        assert placement_faults(part, Placement(int(pool.address[b]) for b in placed)) == []
