"""The skyline search: against brute force, and against CP-SAT where loads are not reached."""

import time

import pytest

from offcert.formulations.placement.no_overlap_cpsat import no_overlap_cpsat
from offcert.formulations.placement.skyline import Answer, Skyline, skyline_search
from offcert.formulations.placement.skyline_branch import FEWEST, HEAVIEST, LOWEST, WEIGHTED
from offcert.formulations.placement.skyline_state import Sections, largest_sets
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    Residence,
    placement_faults,
)
from support.oracles.placement import least_pool
from support.problems.placements import random_placement_problem
from support.problems.tight_placements import crowded_problem, tight_problem

# Seeds of `tight_problem` whose least pool is more than their load, found among the first 12,000.
ABOVE_LOAD: tuple[int, ...] = (1042, 1293, 1366, 1734, 3607, 4004)


@pytest.mark.parametrize("seed", range(60))
def test_search_agrees_with_brute_force(seed: int) -> None:
    problem = random_placement_problem(seed, most=8, span=6)
    outcome = skyline_search(problem, time_limit=60, seed=seed)
    assert outcome.complete
    assert outcome.placement is not None
    assert placement_faults(problem, outcome.placement) == []
    assert outcome.placement.pool(problem) == least_pool(problem)


@pytest.mark.parametrize("seed", ABOVE_LOAD)
def test_what_is_excluded_above_the_load_is_excluded_by_cpsat(seed: int) -> None:
    problem = tight_problem(seed)
    ours, theirs = skyline_search(problem), no_overlap_cpsat(problem)
    assert ours.complete
    assert theirs.complete
    assert ours.placement is not None
    assert theirs.placement is not None
    least = ours.placement.pool(problem)
    assert least == theirs.placement.pool(problem) > problem.load
    assert [bound.value for bound in ours.bounds] == [least]
    assert placement_faults(problem, theirs.placement) == []
    skyline = Skyline(Sections(problem))
    for rule in (FEWEST, LOWEST, WEIGHTED, HEAVIEST):
        assert skyline.search(least - 1, time.monotonic() + 60, rule=rule) is Answer.NONE
        assert skyline.search(least, time.monotonic() + 60, rule=rule) is Answer.FOUND


@pytest.mark.parametrize("seed", [275, 578, 769, 876, 904, 980, 1010, 1192])
def test_some_points_have_to_be_left_free(seed: int) -> None:
    """Without that choice the search ends with a larger pool on each of these."""
    problem = crowded_problem(seed)
    ours, theirs = skyline_search(problem), no_overlap_cpsat(problem)
    assert ours.placement is not None
    assert theirs.placement is not None
    assert placement_faults(problem, ours.placement) == []
    assert ours.placement.pool(problem) == theirs.placement.pool(problem)
    assert theirs.complete


@pytest.mark.parametrize("seed", range(40))
def test_tight_problems_are_placed_without_overlap_at_their_load(seed: int) -> None:
    problem = tight_problem(seed)
    least = skyline_search(problem, time_limit=60).placement
    assert least is not None
    assert placement_faults(problem, least) == []
    assert least.pool(problem) >= problem.load
    within = skyline_search(problem.with_capacity(least.pool(problem)), time_limit=60)
    assert within.placement is not None
    assert placement_faults(problem.with_capacity(least.pool(problem)), within.placement) == []


@pytest.mark.parametrize("search", [skyline_search, no_overlap_cpsat])
def test_a_capacity_that_is_too_small_is_refused(search: object) -> None:
    problem = tight_problem(ABOVE_LOAD[0])
    outcome = search(problem.with_capacity(problem.load))  # type: ignore[operator]
    assert outcome.complete
    assert outcome.placement is None
    assert [bound.value for bound in outcome.bounds] == [problem.load + 1]


@pytest.mark.parametrize("search", [skyline_search, no_overlap_cpsat])
def test_nothing_to_place_and_a_hint_that_is_least(search: object) -> None:
    empty = PlacementProblem("empty", [Residence("a", 0, 0, 1)])
    assert search(empty).placement == Placement([0])  # type: ignore[operator]
    one = PlacementProblem("one", [Residence("a", 3, 0, 1), Residence("b", 2, 1, 2)])
    outcome = search(one, hint=Placement([0, 0]))  # type: ignore[operator]
    assert outcome.complete
    assert outcome.bounds == ()


def test_sections_are_the_largest_sets_that_are_live_together() -> None:
    # 0-2 and 1-3 meet; 3-5 begins as the second ends; 4-5 meets it.
    assert largest_sets([0, 1, 3, 4], [2, 3, 5, 5]) == [1, 4]
