"""The search under a sinking limit: legal plans in time, and the best programs of tiny networks."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations

import pytest

from offcert.core.platform import Link
from offcert.core.program import Program, Segment
from offcert.heuristics.joint.plans import JointPlan
from offcert.heuristics.joint.sinking import SinkingSearch
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.verification.execution import execution_faults
from support.oracles.rematerialisation import RematerialisationOracle
from support.problems.random_instances import seeded
from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem
from support.problems.residual_networks import residual_problem


def within(problem: Problem, spare: Fraction) -> Problem:
    deadline = int(problem.trace.compute_time * (1 + spare))
    return replace(problem, minimise=Minimise.MEMORY, deadline=deadline)


def plans(problem: Problem, coolings: int = 3, steps: int = 60) -> list[tuple[JointPlan, int]]:
    """Return every plan that a short search offers, with its bytes."""
    found: list[tuple[JointPlan, int]] = []
    search = SinkingSearch(problem)
    search.improve(
        60.0,
        coolings=coolings,
        steps=steps,
        on_improvement=lambda plan, limit: found.append((plan, limit)),
    )
    return found


@pytest.mark.parametrize("seed", range(6))
def test_plans_are_legal_in_time_and_take_ever_less(seed: int) -> None:
    rng = seeded(seed)
    network = checkpoint_chain(rng, 5) if seed % 2 else random_network(rng, 5)
    problem = replace(recompute_problem(rng, network), offload=seed % 3 != 0)
    problem = within(problem, Fraction(seed % 4, 10))
    before = problem.trace.peak_memory + 1
    found = plans(problem)
    assert found
    for plan, limit in found:
        assert limit < before
        before = limit
        assert problem.deadline is not None
        assert plan.schedule.makespan <= problem.deadline
        assert execution_faults(problem.computed, plan.execution) == []
        timed = replace(problem, minimise=Minimise.TIME, deadline=None).with_memory(limit)
        assert check(timed.executed(plan.execution), plan.schedule) == []


def least_of_one_segment(problem: Problem, count: int) -> int:
    """Return the fewest bytes of any program of one segment among the first computations."""
    network = problem.computed
    assert network is not None
    assert problem.deadline is not None
    best = problem.trace.peak_memory
    for first, last in combinations(range(count + 1), 2):
        inside = range(first, last)
        for kept in chain.from_iterable(combinations(inside, n) for n in range(len(inside))):
            strategy = Program([Segment(first, last - 1, kept)]).strategy(network)
            trace = strategy.without_unread(network).expand(network).trace
            if trace.compute_time <= problem.deadline:
                best = min(best, trace.peak_memory)
    return best


@pytest.mark.slow
def test_between_programs_of_one_segment_and_all_executions() -> None:
    exact = below = 0
    for seed in range(7):
        rng = seeded(seed)
        network = checkpoint_chain(rng, 3) if seed % 2 else random_network(rng, 3, in_place=False)
        problem = replace(recompute_problem(rng, network), offload=False)
        problem = within(problem, Fraction(1, 2))
        assert problem.computed is not None
        found = plans(problem, coolings=6)[-1][1]
        least = RematerialisationOracle(problem.computed).least_memory(problem.deadline)
        assert least is not None
        assert least <= found <= least_of_one_segment(problem, 3), seed
        exact += found == least
        below += least < problem.trace.peak_memory
    assert below >= 3
    assert exact >= 6


@pytest.mark.slow
def test_the_same_numbers_give_the_same_plans() -> None:
    problem = within(residual_problem(4, Fraction(1, 2)), Fraction(1, 5))
    first, second = plans(problem), plans(problem)
    assert [limit for _, limit in first] == [limit for _, limit in second]
    assert len(first) > 1


@pytest.mark.slow
def test_both_take_less_than_recomputation_alone() -> None:
    problem = within(residual_problem(8, Fraction(1, 2)), Fraction(1, 20))
    both = plans(problem, steps=200)[-1][1]
    alone = plans(replace(problem, offload=False), steps=200)[-1][1]
    assert both < alone < problem.trace.peak_memory


@pytest.mark.slow
@pytest.mark.parametrize("link", list(Link))
def test_what_is_enough_ends_the_search(link: Link) -> None:
    problem = within(residual_problem(6, Fraction(1, 2), link=link), Fraction(1, 5))
    search = SinkingSearch(problem)
    found: list[int] = []
    search.improve(
        60.0, enough=problem.trace.peak_memory, on_improvement=lambda plan, m: found.append(m)
    )
    first = len(found)
    assert first >= 1
    # It goes on where it stopped.
    search.improve(60.0, coolings=2, steps=60, on_improvement=lambda plan, m: found.append(m))
    assert found == sorted(found, reverse=True)
    assert len(found) > first


def test_without_a_deadline_less_memory_is_found_than_within_one() -> None:
    problem = within(residual_problem(4, Fraction(1, 2)), Fraction(1, 20))
    whenever = plans(replace(problem, deadline=None))
    assert min(limit for _, limit in whenever) < min(limit for _, limit in plans(problem))
    late = replace(problem, deadline=problem.trace.compute_time - 1)
    assert plans(late) == []
