"""Following a plan, for who verifies: the simulator's times, by other code, in a fixed order."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.errors import PlanError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.check import check, peak
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.verification.replay import replay
from support.problems.random_instances import mixed_problem
from support.problems.random_plans import random_plan
from support.seeds import by_seeds


def test_a_plan_worked_by_hand() -> None:
    trace = Trace(
        [Operation("a", 2), Operation("b", 3, 5), Operation("c", 1)], [Tensor("x", 6, (0, 2))]
    )
    problem = Problem("three", trace, Platform(10, Fraction(2)))
    plan = Plan([Move(Kind.OFFLOAD, 0, 1), Move(Kind.PREFETCH, 0, 2)])
    # x leaves from 2 to 5; b, which would need 11, runs from 5 to 8; x is back when it has ended.
    found = replay(problem, plan)
    assert found.starts == (0, 5, 11)
    assert [(t.start, t.end) for t in found.transfers] == [(2, 5), (8, 11)]
    assert peak(problem, found) == 6
    # With a unit more b need not wait for x to leave; x returns when it has left and b has ended.
    roomy = replay(problem.with_memory(11), plan)
    assert roomy.starts == (0, 2, 8)
    with pytest.raises(PlanError, match="operation 1"):
        replay(problem.with_memory(10), Plan())


def followed(problem: Problem, plan: Plan, how: object) -> Schedule | None:
    assert callable(how)
    try:
        found = how(problem, plan)
    except PlanError:
        return None
    assert isinstance(found, Schedule)
    return found


@pytest.mark.slow
@by_seeds(0, 600, 30)
def test_it_agrees_with_the_simulator_and_the_checker(seeds: range) -> None:
    ended = stuck = 0
    for seed in seeds:
        rng = random.Random(seed)
        problem = mixed_problem(seed)
        link = rng.choice(tuple(Link))
        problem = replace(problem, platform=replace(problem.platform, link=link))
        plan = random_plan(rng, problem.trace)
        mine, theirs = followed(problem, plan, replay), followed(problem, plan, simulate)
        assert (mine is None) == (theirs is None)
        if mine is None or theirs is None:
            stuck += 1
            continue
        ended += 1
        assert (mine.starts, mine.ends) == (theirs.starts, theirs.ends)
        assert set(mine.transfers) == set(theirs.transfers)
        assert not check(problem, mine)
        most = peak(problem, mine)
        assert not check(problem.with_memory(most), mine)
        assert most == 0 or check(problem.with_memory(most - 1), mine)
    assert ended >= 4
    assert stuck >= 10
