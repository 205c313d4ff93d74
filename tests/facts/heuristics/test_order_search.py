"""Annealing over sets and orders of ordered schedules."""

from fractions import Fraction
from itertools import combinations, permutations

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.heuristics.orders.order_search import OrderAnnealer, order_search
from offcert.heuristics.orders.ordered import OrderedArrays, ordered_makespan, ordered_orders
from offcert.heuristics.orders.ordered_kernel import INFEASIBLE
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from support.oracles.annealers import valid_runs
from support.problems.random_instances import random_problem
from support.seeds import by_seeds


def improvements(problem: Problem, **options: object) -> list[Schedule]:
    found: list[Schedule] = []
    order_search(problem, time_limit=20, on_improvement=found.append, **options)  # type: ignore[arg-type]
    return found


def best_ordered(problem: Problem, gaps: list[int]) -> tuple[int, int]:
    """Return the least makespans of ordered schedules, in any orders and in the natural ones."""
    arrays = OrderedArrays(problem)
    values, natural = [], []
    for count in range(len(gaps) + 1):
        for chosen in combinations(gaps, count):
            natural.append(arrays.makespan(*ordered_orders(problem, chosen)))
            for leave in permutations(chosen):
                values += [arrays.makespan(leave, back) for back in permutations(chosen)]
    return (
        min(value for value in values if value != INFEASIBLE),
        min((value for value in natural if value != INFEASIBLE), default=2**62),
    )


@by_seeds(0, 60, 60)
def test_finds_the_best_orders_of_small_chains(seeds: range) -> None:
    better = 0
    for seed in seeds:
        problem = random_problem(seed, 4)
        gaps = list(range(len(problem.trace.gaps)))
        if len({problem.trace.gaps[gap].tensor for gap in gaps}) < len(gaps):
            continue
        if not 2 <= len(gaps) <= 4 or problem.trace.least_memory > problem.platform.memory:
            continue
        try:
            annealer = OrderAnnealer(problem, seed)
        except MethodError:
            continue
        for hot in (20.0, 5.0, 20.0):
            annealer.run(3000, hot, 0.05)
            annealer.restart()
        least, natural = best_ordered(problem, gaps)
        assert annealer.makespan == least, seed
        better += least < natural
    # Orders matter: a search that never changed one would not have passed.
    assert better > 0


def test_schedules_are_valid_on_random_problems() -> None:
    assert valid_runs(OrderAnnealer, 60) > 30


def chain(stages: int, memory: int) -> Problem:
    sizes = [(6, 10, 13)[stage % 3] for stage in range(stages)]
    network = Chain([4] * stages, [8] * stages, [*sizes, 1], [1] * (stages + 1))
    return Problem("three-sizes", network, Platform(memory, Fraction(3, 2)))


@pytest.mark.slow
def test_starts_where_it_is_told_and_gets_no_worse() -> None:
    problem = chain(10, 36)
    first = improvements(problem, target=10**9)[0]
    best = improvements(problem, patience=1)[-1]
    again = improvements(problem, start=best, patience=1)
    assert best.makespan < first.makespan
    assert again[0].makespan <= best.makespan
    assert again[-1].makespan <= again[0].makespan


def test_a_start_that_is_no_ordered_schedule_is_not_taken() -> None:
    problem = chain(8, 34)
    natural = ordered_makespan(problem, range(len(problem.trace.gaps)))
    for start in ([], []), ([0, 1], [0]), ([99], [99]):
        assert OrderAnnealer(problem, 0, start).makespan == natural


def test_the_same_seed_finds_the_same() -> None:
    runs = []
    for _ in range(2):
        annealer = OrderAnnealer(chain(12, 40), 5)
        annealer.run(500, 20.0, 0.5)
        runs.append((annealer.makespan, annealer.schedule()))
    assert runs[0] == runs[1]


@pytest.mark.slow
def test_stops_at_the_target_and_improves_strictly() -> None:
    problem = chain(10, 36)
    found = [schedule.makespan for schedule in improvements(problem)]
    assert found == sorted(set(found), reverse=True)
    goal = found[len(found) // 2]
    stopped = [schedule.makespan for schedule in improvements(problem, target=goal)]
    assert stopped[-1] <= goal
    assert all(value > goal for value in stopped[:-1])


def test_nothing_to_start_from_is_said() -> None:
    problem = chain(6, 1)
    with pytest.raises(MethodError, match="start"):
        OrderAnnealer(problem, 0)
