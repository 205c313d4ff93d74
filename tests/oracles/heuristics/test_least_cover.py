"""Least covers: exact, and decisive where one operation decides."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from offcert.core.errors import MethodError, NoPlanError
from offcert.formulations.combinatorial.relaxations import prop3_bound
from offcert.heuristics.evictions import rules as module
from offcert.heuristics.evictions.rules import least_cover, least_cover_plan
from offcert.instances.two_partition import halve, two_partition
from offcert.questions.schedule.check import check
from offcert.questions.schedule.simulate import simulate
from support.oracles.schedules import brute_force
from support.problems.random_instances import counterexample, tiny_problems


def test_covers_are_the_least() -> None:
    rng = random.Random(1)
    for _ in range(200):
        scale = rng.choice((1, 1000))
        sizes = [scale * rng.randint(1, 30) for _ in range(rng.randint(1, 8))]
        amount = rng.randint(1, sum(sizes))
        chosen = least_cover(sizes, amount)
        assert chosen == sorted(set(chosen))
        every = [sum(part) for n in range(len(sizes) + 1) for part in combinations(sizes, n)]
        assert sum(sizes[i] for i in chosen) == min(total for total in every if total >= amount)


@pytest.mark.parametrize("transfers", ["atomic", "interruptible"])
def test_it_solves_reductions_from_2_partition_whatever_the_answer(transfers: str) -> None:
    """What the least cover has beyond a half has to move twice, and nothing else is lost."""
    answers = set()
    for seed in range(12):
        rng = random.Random(seed)
        values = [rng.randint(1, (20, 9000)[seed % 2]) for _ in range(7 + seed % 3)]
        values[0] += sum(values) % 2
        problem = two_partition(values, transfers)
        closest = halve(values).closest
        schedule = simulate(problem, least_cover_plan(problem))
        assert schedule.makespan == 2 * (sum(values) - closest)
        assert prop3_bound(problem, subset_sum=True).value == schedule.makespan
        answers.add(2 * closest == sum(values))
    assert answers == {True, False}


def test_plans_are_valid_and_no_better_than_the_best() -> None:
    found = optimal = 0
    for problem in tiny_problems(60, seed=3, largest=4):
        best = brute_force(problem)
        try:
            schedule = simulate(problem, least_cover_plan(problem))
        except MethodError:
            continue
        assert best is not None
        assert check(problem, schedule) == []
        assert schedule.makespan >= best
        found += 1
        optimal += schedule.makespan == best
    assert found > 20
    assert optimal > 10


def test_sums_that_are_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BITS", 100)
    with pytest.raises(NoPlanError, match="3 tensors have too many sums up to 170"):
        least_cover([101, 102, 107], 140)


def test_nothing_to_evict_is_a_plan() -> None:
    problem = counterexample()
    assert least_cover_plan(problem.with_memory(problem.trace.peak_memory)).moves == ()
