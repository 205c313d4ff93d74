"""Annealing over how many tensors of each size leave."""

from fractions import Fraction
from functools import partial
from itertools import product

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.heuristics.orders.order_search import OrderAnnealer, set_search
from offcert.heuristics.orders.ordered import ordered_makespan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from support.oracles.annealers import valid_runs

of_sets = partial(OrderAnnealer, sets_only=True)


def two_sizes(stages: int, memory: int) -> Problem:
    sizes = [6 if stage % 2 else 10 for stage in range(stages)]
    chain = Chain([4] * stages, [8] * stages, [*sizes, 1], [1] * (stages + 1))
    return Problem("two-sizes", chain, Platform(memory, Fraction(3, 2)))


def best_found(problem: Problem, **options: int) -> Schedule | None:
    found: list[Schedule] = []
    set_search(problem, time_limit=20, on_improvement=found.append, **options)
    assert [s.makespan for s in found] == sorted({s.makespan for s in found}, reverse=True)
    return found[-1] if found else None


@pytest.mark.parametrize("memory", [30, 36, 44])
def test_finds_the_best_counts_of_two_sizes(memory: int) -> None:
    problem = two_sizes(10, memory)
    gaps = problem.trace.gaps
    by_size = [
        sorted((g for g in range(len(gaps)) if problem.trace.gap_size(g) == size), reverse=False)
        for size in (6, 10)
    ]
    values = [
        ordered_makespan(problem, [*by_size[0][:few], *by_size[1][:many]])
        for few, many in product(range(len(by_size[0]) + 1), range(len(by_size[1]) + 1))
    ]
    best = best_found(problem)
    assert best is not None
    assert best.makespan == min(value for value in values if value is not None)
    assert best.makespan < max(value for value in values if value is not None)


def test_schedules_are_valid_on_random_problems() -> None:
    assert valid_runs(of_sets, 40) > 20


def test_the_same_seed_finds_the_same() -> None:
    problem = two_sizes(12, 34)
    runs = []
    for _ in range(2):
        annealer = of_sets(problem, 5)
        annealer.run(300, 20.0, 0.5)
        runs.append((annealer.makespan, annealer.schedule()))
    assert runs[0] == runs[1]


def test_stops_at_the_target() -> None:
    problem = two_sizes(10, 36)
    best = best_found(problem)
    assert best is not None
    first = best_found(problem, target=10**6)
    assert first is None or first.makespan <= 10**6
    assert of_sets(problem, 0).makespan >= best.makespan
