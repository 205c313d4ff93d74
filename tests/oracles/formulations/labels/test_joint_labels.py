"""The exact search for joint plans: against brute force, and what it says of what is left."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.errors import MethodError
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.formulations.labels.joint.bound import no_execution, shortest_execution
from offcert.formulations.labels.joint.model import JointModel
from offcert.formulations.labels.joint.search import search
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.execution import execution_faults
from support.oracles.joint import least_time
from support.oracles.rematerialisation import RematerialisationOracle
from support.oracles.schedules import brute_force
from support.oracles.ticks import least_ticks
from support.problems.joint import (
    joint_problem,
    left_before_changes,
    made_twice_before_a_change,
    solvable,
)
from support.problems.random_instances import away_between_neighbours, mixed_problem
from support.problems.random_networks import changed_network, random_network, recompute_problem
from support.seeds import by_seeds


def shortest(problem: Problem) -> int | None:
    """Return the least makespan, of a schedule that is legal; None if there is none."""
    found = shortest_execution(problem, 60)
    if found.bound is None:
        return None
    assert found.execution is not None
    assert found.schedule is not None
    assert problem.computed is not None
    assert execution_faults(problem.computed, found.execution) == []
    assert check(problem.executed(found.execution), found.schedule) == []
    assert found.schedule.makespan == found.bound.value
    return found.bound.value


@pytest.mark.slow
def test_it_is_as_good_as_brute_force() -> None:
    moved = again = 0
    problems = solvable(400)
    for _ in range(40):
        problem, best = next(problems)
        assert problem.computed is not None
        assert shortest(problem) == best
        found = shortest_execution(problem, 60)
        assert found.execution is not None
        assert found.schedule is not None
        moved += bool(found.schedule.transfers)
        again += bool(found.execution.repeated)
    assert moved >= 4
    assert again >= 4


@pytest.mark.slow
@by_seeds(0, 60, 60)
def test_where_everything_runs_once_it_is_as_good_as_brute_force(seeds: range) -> None:
    several = 0
    for seed in seeds:
        problem = mixed_problem(seed, 5)
        found = shortest_execution(problem, 60)
        assert found.bound is not None
        assert found.bound.value == brute_force(problem)
        assert found.execution is not None
        assert found.schedule is not None
        assert found.execution.trace == problem.trace
        assert check(problem, found.schedule) == []
        assert found.schedule.makespan == found.bound.value
        several += len(problem.trace.gaps) > len({gap.tensor for gap in problem.trace.gaps})
    assert several >= 4


def test_on_a_duplex_link_nothing_is_away_between_two_uses_one_after_the_other() -> None:
    problem = away_between_neighbours()
    assert brute_force(problem) == 19
    found = shortest_execution(problem, 60)
    assert found.bound is not None
    assert found.bound.value == 19
    model = JointModel(problem)
    model.stays = [0] * len(model.stays)
    assert search(model, problem.platform.memory).bound == 18


@pytest.mark.slow
@by_seeds(0, 100)
def test_what_is_changed_in_place_once_or_twice_and_nothing_leaves(seeds: range) -> None:
    changed = longer = impossible = 0
    for seed in seeds:
        rng = random.Random(seed)
        network = changed_network(rng)
        problem = replace(recompute_problem(rng, network), offload=False)
        found = RematerialisationOracle(network).least_time(problem.platform.memory)
        exact = shortest_execution(problem, 60)
        if found is None:
            assert exact.bound is None
            impossible += 1
            continue
        assert shortest(problem) == found[0]
        changed += any(value.base is not None for value in network.values)
        longer += found[0] > network.compute_time
    assert changed >= 12
    assert longer >= 1
    assert impossible >= 2


@pytest.mark.parametrize("changes", [1, 2])
def test_what_left_before_changes_in_place_need_not_leave_again(changes: int) -> None:
    problem, best = left_before_changes(changes)
    assert least_ticks(problem) == best
    assert shortest(problem) == best


def test_two_copies_before_one_is_changed_in_place() -> None:
    problem, best = made_twice_before_a_change()
    assert least_ticks(problem) == best
    assert shortest(problem) == best


def two_copies() -> Problem:
    """Return a problem in which a copy on the host and one that is made again are both used.

    While y is made, x has to leave. F runs again for s, which is larger than x, and makes x again.
    """
    network = Network(
        [
            Computation("F", 2, writes=(0, 1)),
            Computation("G", 3, workspace=9, reads=(), writes=(2,)),
            Computation("H", 4, reads=(0, 2), repeatable=False),
            Computation("L", 6, workspace=7, reads=(2,), repeatable=False),
            Computation("B", 1, reads=(0, 1), repeatable=False),
        ],
        [Value("x", 3), Value("s", 5, evictable=False), Value("y", 1)],
    )
    return Problem(
        "copies", network, Platform(10, Fraction(1), Link.DUPLEX), recompute=Recompute.ANY
    )


def test_a_run_again_and_a_return_of_the_same_value() -> None:
    problem = two_copies()
    best = least_time(problem)
    assert best is not None
    assert shortest(problem) == best > problem.trace.compute_time


def test_only_what_is_shorter_than_what_is_known_is_looked_for() -> None:
    problem = two_copies()
    best = shortest(problem)
    assert best is not None
    same = shortest_execution(problem, 60, known=best)
    assert same.schedule is None
    assert same.bound is not None
    assert same.bound.value == best
    better = shortest_execution(problem, 60, known=best + 1)
    assert better.schedule is not None
    assert better.schedule.makespan == best


def test_out_of_labels_the_bound_is_no_more_than_the_optimum() -> None:
    rng = random.Random(27)
    problem = recompute_problem(rng, random_network(rng, 4), Fraction(1, 20))
    best = shortest(problem)
    assert best is not None
    bounds = set()
    for most in (1, 20, 100, 400):
        part = shortest_execution(problem, 60, most=most)
        assert part.bound is not None
        assert part.bound.value <= best
        bounds.add(part.bound.value)
    assert max(bounds) >= problem.trace.compute_time


@pytest.mark.slow
@by_seeds(0, 120, 30)
def test_the_least_memory_of_what_cannot_be_executed(seeds: range) -> None:
    found = 0
    for seed in seeds:
        problem = joint_problem(seed)
        lacking = no_execution(problem, 60)
        if lacking is None or problem.platform.memory < problem.least_memory:
            continue
        found += 1
        assert lacking.needed - lacking.lacking == problem.platform.memory
        assert least_time(problem.with_memory(lacking.needed - 1)) is None
        assert shortest(problem.with_memory(lacking.needed)) is not None
    assert found >= 3


def test_empty_values_do_not_leave_and_take_no_room() -> None:
    network = Network(
        [
            Computation("A", 1, writes=(0, 1)),
            Computation("B", 1, workspace=4, reads=(0,), repeatable=False),
            Computation("C", 1, reads=(0, 1), repeatable=False),
        ],
        [Value("empty", 0), Value("x", 2)],
    )
    problem = Problem("empty", network, Platform(4, Fraction(2)), recompute=Recompute.ANY)
    model = JointModel(problem)
    assert model.sizes[0] == 0
    assert not model.leaves & 1
    # x is there at 1, leaves for a tick while B waits, and returns; or A runs again.
    assert shortest(problem) == 4


BUSY = ("busy_bandwidth", "busy_prefetch_bandwidth")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"minimise": "memory"}, "asked for the least time, and the problem minimises memory"),
        ({"transfers": "interruptible"}, "atomic transfers, not interruptible"),
        (
            {
                "platform": Platform(
                    9, Fraction(1), link=Link.DUPLEX, **dict.fromkeys(BUSY, Fraction(1, 2))
                )
            },
            "links whose directions do not slow each other down",
        ),
    ],
)
def test_other_problems_are_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    problem = replace(two_copies(), **wrong)
    with pytest.raises(MethodError, match=said):
        shortest_execution(problem, 1)
