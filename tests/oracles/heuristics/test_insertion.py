"""Gaps added to given orders: never worse than without, always a schedule."""

import random

from offcert.core.errors import MethodError
from offcert.heuristics.orders.insertion import with_all_but, with_insertions
from offcert.heuristics.orders.ordered import ordered_schedule
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from support.problems.random_instances import random_problem
from support.seeds import by_seeds


def makespan(complete: object, problem: Problem, *parts: object) -> int | None:
    """Return how long the schedule is that a function makes of some orders, if it makes one."""
    try:
        schedule = complete(problem, *parts)  # type: ignore[operator]
    except MethodError:
        return None
    assert check(problem, schedule) == []
    return int(schedule.makespan)


@by_seeds(0, 150, 30)
def test_insertions_shorten_orders_or_leave_them(seeds: range) -> None:
    shorter = impossible = 0
    for seed in seeds:
        rng = random.Random(seed)
        problem = random_problem(seed, 5)
        gaps = list(range(len(problem.trace.gaps)))
        rng.shuffle(gaps)
        some, others = gaps[:2], gaps[2:]
        try:
            plain = ordered_schedule(problem, some, some[::-1]).makespan
        except MethodError:
            plain = None
        try:
            schedule = with_insertions(problem, some, some[::-1], others)
        except MethodError:
            assert plain is None
            impossible += 1
            continue
        assert check(problem, schedule) == []
        assert plain is None or schedule.makespan <= plain
        shorter += plain is None or schedule.makespan < plain
    assert shorter >= 1
    assert impossible >= 4


@by_seeds(0, 200, 100)
def test_all_but_some_are_a_schedule_where_one_after_the_other_is_none(seeds: range) -> None:
    found = shorter = longer = 0
    for seed in seeds:
        rng = random.Random(seed)
        problem = random_problem(seed, 5)
        gaps = list(range(len(problem.trace.gaps)))
        rng.shuffle(gaps)
        some, others = gaps[:1], gaps[1:]
        plain = makespan(ordered_schedule, problem, some, some)
        grown = makespan(with_insertions, problem, some, some, others)
        left = makespan(with_all_but, problem, some, some, others)
        # Neither is the shorter one always: both add what helps, in another order.
        found += grown is None and left is not None
        if grown is not None and left is not None:
            shorter += left < grown
            longer += left > grown
        assert plain is None or (grown is not None and grown <= plain)
    assert found >= 10
    assert shorter >= 1
    assert longer >= 3
