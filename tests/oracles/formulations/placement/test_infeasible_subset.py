"""Capacities that are excluded, and fewer residences that exclude them, too."""

import time

import pytest

from offcert.formulations.placement.no_overlap_cpsat import no_overlap_cpsat
from offcert.formulations.placement.skyline import Infeasible, exclude, reduced
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    Residence,
    placement_faults,
)
from support.oracles.placement import least_pool
from support.problems.placements import random_placement_problem
from support.problems.tight_placements import tight_problem

# Seeds of `tight_problem` whose least pool is one above their load.
ABOVE_LOAD = (1042, 1293, 1366, 1734)


def soon() -> float:
    return time.monotonic() + 60


def part(problem: PlacementProblem, chosen: tuple[int, ...]) -> PlacementProblem:
    return PlacementProblem("", [problem.residences[index] for index in chosen])


@pytest.mark.parametrize("seed", ABOVE_LOAD)
def test_fewer_residences_exclude_as_much(seed: int) -> None:
    problem = tight_problem(seed)
    found: list[Placement] = []
    excluded = exclude(problem, problem.load, soon(), found=found.append)
    assert excluded is not None
    assert excluded.value == problem.load + 1
    assert sorted(excluded.residences) == list(range(len(problem.residences)))
    assert placement_faults(problem, found[-1]) == []
    assert found[-1].pool(problem) == excluded.value
    fewer = reduced(problem, excluded, soon())
    assert len(fewer.residences) < len(excluded.residences)
    assert fewer.value == excluded.value
    # Another solver agrees; none of them can be left out, and all of them do fit into the value.
    within = part(problem, fewer.residences)
    assert no_overlap_cpsat(within.with_capacity(problem.load)).placement is None
    assert no_overlap_cpsat(within.with_capacity(fewer.value)).placement is not None
    for missing in fewer.residences:
        less = tuple(index for index in fewer.residences if index != missing)
        assert no_overlap_cpsat(part(problem, less).with_capacity(problem.load)).placement


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_excluded_that_is_possible(seed: int) -> None:
    problem = random_placement_problem(seed, most=7, span=7)
    least = least_pool(problem)
    excluded = exclude(problem, 0, soon())
    assert (0 if excluded is None else excluded.value) <= least
    assert exclude(problem, least, soon()) is None
    assert exclude(problem.with_capacity(least), problem.load, soon()) is None


def test_only_the_capacity_that_there_is_gets_excluded() -> None:
    problem = tight_problem(ABOVE_LOAD[0])
    load = problem.load
    within = exclude(problem.with_capacity(load), 0, soon())
    assert within is not None
    assert within.value == load + 1
    assert exclude(problem.with_capacity(load - 1), load, soon()) is None
    assert exclude(PlacementProblem("none", []), 0, soon()) is None


def test_units_of_fewer_residences_may_be_larger() -> None:
    """Where all sizes but one are multiples of 100, a byte more is a hundred more."""
    rows = [
        Residence("", 100 * each.size, each.start, each.end)
        for each in tight_problem(ABOVE_LOAD[2]).residences
    ]
    problem = PlacementProblem("", [*rows, Residence("", 7, 20, 21)])
    whole = Infeasible(problem.load + 1, tuple(range(len(problem.residences))))
    fewer = reduced(problem, whole, soon())
    assert fewer.value == problem.load + 100
    # Searched byte by byte it is the same, in few attempts.
    excluded = exclude(problem, problem.load, soon())
    assert excluded is not None
    assert excluded.value == fewer.value


def test_without_time_nothing_is_said_or_left_out() -> None:
    problem = tight_problem(ABOVE_LOAD[0])
    whole = Infeasible(problem.load + 1, tuple(range(len(problem.residences))))
    late = time.monotonic() - 1
    assert exclude(problem, problem.load, late) is None
    assert reduced(problem, whole, late) == whole
