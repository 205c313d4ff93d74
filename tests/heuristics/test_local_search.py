from fractions import Fraction

import pytest
from oracle import brute_force
from random_instances import mixed_problem, random_problem

from offcert.core.chain import Chain
from offcert.core.check import check
from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.core.problem import Problem
from offcert.core.simulate import simulate
from offcert.formulations.relaxations import infeasibility
from offcert.heuristics.local_search import local_search


def test_local_search_finds_the_interleaved_optimum_of_the_counterexample() -> None:
    chain = Chain(
        [40, 10, 40, 60, 1, 1, 1],
        [1, 1, 1, 1, 60, 1, 1],
        [40, 0, 0, 60, 0, 0, 60, 0],
        [0] * 8,
        [0, 100, 0, 0, 0, 0, 0],
    )
    problem = Problem("spike", chain, Platform(100, Fraction(1)))
    assert simulate(problem, local_search(problem, max_restarts=2)).makespan == 219


def test_local_search_is_optimal_on_nearly_all_tiny_instances() -> None:
    met = tried = 0
    for seed in range(60):
        problem = mixed_problem(seed, 4)
        if infeasibility(problem) is not None:
            continue
        optimum = brute_force(problem)
        assert optimum is not None
        plan = local_search(problem, max_restarts=1, target=optimum)
        schedule = simulate(problem, plan)
        assert check(problem, schedule) == []
        assert schedule.makespan >= optimum
        tried += 1
        met += schedule.makespan == optimum
    assert tried >= 40
    assert met >= 0.95 * tried


def test_the_same_seed_gives_the_same_plan() -> None:
    problem = random_problem(11, 8)
    plans = [local_search(problem, seed=3, max_restarts=1, time_limit=1e6) for _ in range(2)]
    assert plans[0] == plans[1]


def test_infeasible_memory_is_said() -> None:
    problem = random_problem(5)
    with pytest.raises(MethodError, match=r"lacks 1 bytes"):
        local_search(problem.with_memory(problem.trace.least_memory - 1))
