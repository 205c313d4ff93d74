"""Least memory within a deadline: bounds and plans on both sides of brute force."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.climbing import climb_part
from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.deadlines import (
    Bracket,
    climb_limits,
    descend_sinking,
    halve_limits,
    limit_met_by,
    timed,
)
from offcert.certification.search_steps.joint import descend_whole
from offcert.certification.search_steps.rematerialisation import bound_least_memory
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence
from offcert.formulations.joint.bound import joint_bounds
from offcert.proofs.any_certificate import Settings
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.document import verify
from support.oracles.joint import least_time
from support.oracles.schedules import brute_force
from support.problems.least_memory import memory_problem
from support.problems.random_instances import seeded
from support.problems.random_networks import checkpoint_chain, random_network
from support.problems.residual_networks import residual_problem


def search_of(problem: Problem) -> Search:
    """Return a search that knows what a single run takes, and the plan in which all stays."""
    search = Search(problem, 60.0)
    bound_least_memory(search, Effort(0.1))
    descend_whole(search, Effort(1.0))
    return search


def require_valid(search: Search) -> None:
    assert verify(search.certificate("certify", Settings()).to_json()).valid
    deadline = search.problem.deadline
    assert search.schedule is not None
    assert deadline is not None
    assert search.schedule.makespan <= deadline


def tiny_problem(seed: int, again: Recompute) -> Problem:
    """Draw a problem of offloading within a deadline, alone or beside recomputation."""
    rng = seeded(seed)
    network = checkpoint_chain(rng, 2) if seed % 2 else random_network(rng, 2)
    platform = Platform(1, rng.choice((Fraction(1), Fraction(3))))
    problem = Problem("tiny", network, platform, minimise=Minimise.MEMORY, recompute=again)
    return replace(problem, deadline=problem.trace.compute_time + rng.choice((0, 2, 5)))


def in_time(problem: Problem, limit: int) -> bool:
    """Return whether brute force meets the deadline within a limit."""
    assert problem.deadline is not None
    within = timed(problem, limit)
    if limit < within.least_memory:
        return False
    found = brute_force(within) if problem.recompute is Recompute.NONE else least_time(within, 1)
    return found is not None and found <= problem.deadline


@pytest.mark.slow
@pytest.mark.parametrize("block", range(3))
def test_recomputation_alone_beside_brute_force(block: int) -> None:
    exact = 0
    for seed in range(1 + 16 * block, 17 + 16 * block, 2):
        problem, least = memory_problem(seed)
        search = search_of(problem)
        climb_limits(search, Effort(1.0))
        assert search.lower_bound <= least, seed
        descend_sinking(search, Effort(0.05, workers=1))
        assert search.objective is not None
        assert search.objective >= least, seed
        require_valid(search)
        exact += search.objective == least
    assert exact >= 6


@pytest.mark.slow
def test_offloading_alone_is_closed() -> None:
    for seed in range(8):
        problem = tiny_problem(seed, Recompute.NONE)
        search = search_of(problem)
        climb_limits(search, Effort(1.0))
        halve_limits(search, Effort(2.0, workers=1, climb=climb_part))
        found = search.objective
        assert found is not None
        assert search.lower_bound == found, seed
        assert in_time(problem, found)
        assert not in_time(problem, found - 1)
        require_valid(search)


@pytest.mark.slow
def test_bounds_for_both_are_at_most_brute_force() -> None:
    for seed in range(12):
        problem = tiny_problem(seed, Recompute.ANY)
        search = search_of(problem)
        least = next(m for m in range(problem.trace.peak_memory + 1) if in_time(problem, m))
        climb_limits(search, Effort(1.0))
        descend_sinking(search, Effort(0.05, workers=1))
        # Brute force runs one computation again; a plan may do more with less.
        assert search.lower_bound <= least, seed
        require_valid(search)


@pytest.mark.slow
def test_the_means_beside_each_other() -> None:
    problem = residual_problem(6, Fraction(1, 2))
    problem = replace(
        problem, minimise=Minimise.MEMORY, deadline=problem.trace.compute_time * 6 // 5
    )
    found = {}
    for name, again, offload in (
        ("offload", Recompute.NONE, True),
        ("recompute", Recompute.ANY, False),
        ("both", Recompute.ANY, True),
    ):
        search = search_of(replace(problem, recompute=again, offload=offload))
        climb_limits(search, Effort(0.6))
        descend_sinking(search, Effort(0.5, workers=1))
        if name == "offload":
            halve_limits(search, Effort(0.6, workers=1, climb=climb_part))
        require_valid(search)
        found[name] = search
    # However little time the search had: in so much more time, recomputation does much.
    objectives = {name: search.objective or 0 for name, search in found.items()}
    assert 2 * max(objectives["both"], objectives["recompute"]) < objectives["offload"]
    for name in ("offload", "recompute"):
        assert found["both"].lower_bound <= found[name].lower_bound
        assert found[name].lower_bound > found[name].problem.least_memory


def test_steps_are_for_deadlines_only() -> None:
    problem = replace(tiny_problem(0, Recompute.ANY), deadline=None)
    for step in (climb_limits, descend_sinking, halve_limits):
        search = search_of(problem)
        before = search.objective, len(search.bounds)
        step(search, Effort(1.0))
        assert (search.objective, len(search.bounds)) == before


def test_where_multipliers_just_meet_a_deadline() -> None:
    problem = replace(residual_problem(6, Fraction(2, 5)), offload=False)
    limit, deadline = problem.platform.memory, problem.trace.compute_time * 11 // 10
    bound = next(joint_bounds(problem, 5.0))
    root = limit_met_by(bound, limit, deadline)
    assert root is not None
    assert (root > limit) == (bound.value > deadline)
    # The optimum is convex in the limit, so that it is no less there, but for whole values.
    assert next(joint_bounds(problem.with_memory(root), 5.0)).value >= 0.99 * deadline
    plain = Bound("prop3", 7, Evidence.PROVED)
    assert limit_met_by(plain, limit, deadline) is None


def test_the_next_limit_lies_between_what_is_known() -> None:
    bracket = Bracket(10, 100)
    assert bracket.next(True) == bracket.next(False) == 55
    bracket.miss(40)
    bracket.miss(60)
    assert (bracket.next(True), bracket.next(False)) == (80, 25)
    assert bracket.holds(11)
    assert not bracket.holds(10)
    assert not bracket.holds(100)
