"""Ordered schedules against the checker, the simulator, brute force and hand computation."""

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.orders.ordered import (
    INFEASIBLE,
    OrderedArrays,
    ordered_makespan,
    ordered_orders,
    ordered_plan,
    ordered_schedule,
)
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.oracles.schedules import brute_force
from support.problems.random_instances import (
    counterexample,
    mixed_problem,
    random_problem,
    two_rates,
)
from support.seeds import by_seeds


def one_gap_sets(problem: Problem, limit: int = 4) -> list[tuple[int, ...]]:
    gaps = problem.trace.gaps
    return [
        chosen
        for count in range(limit + 1)
        for chosen in combinations(range(len(gaps)), count)
        if len({gaps[gap].tensor for gap in chosen}) == count
    ]


def random_orders(problem: Problem, rng: random.Random) -> tuple[list[int], list[int]]:
    gaps = problem.trace.gaps
    chosen: dict[int, int] = {}
    for gap in rng.sample(range(len(gaps)), len(gaps)):
        if rng.random() < 0.8:
            chosen.setdefault(gaps[gap].tensor, gap)
    offload_order = list(chosen.values())
    if rng.random() < 0.5:
        return ordered_orders(problem, offload_order)
    return offload_order, rng.sample(offload_order, len(offload_order))


@pytest.mark.slow
@by_seeds(0, 600, 30)
def test_schedules_are_valid_and_the_simulator_does_not_worsen_them(seeds):
    found = shorter_on_simplex = 0
    for seed in seeds:
        rng = random.Random(seed)
        problem = mixed_problem(seed, largest=7)
        orders = random_orders(problem, rng)
        try:
            schedule = ordered_schedule(problem, *orders)
        except MethodError:
            continue
        found += 1
        assert check(problem, schedule) == []
        assert schedule.makespan == OrderedArrays(problem).makespan(*orders)
        assert [t.gap for t in schedule.transfers if t.kind is Kind.PREFETCH] == orders[1]
        again = simulate(problem, schedule.plan(problem.trace))
        assert again.makespan <= schedule.makespan
        if not problem.platform.duplex:
            shorter_on_simplex += again.makespan < schedule.makespan
    assert found >= 11
    assert shorter_on_simplex == 0


def applicable_problems(count: int) -> Iterator[Problem]:
    """Yield tiny problems on a simplex link with one gap a tensor: there the formula is exact."""
    for seed in range(100_000):
        problem = random_problem(seed, largest=5)
        gaps = problem.trace.gaps
        if len({gap.tensor for gap in gaps}) == len(gaps) <= 4:
            if count % 2:
                problem = two_rates(problem)
            yield replace(problem, platform=replace(problem.platform, link=Link.SIMPLEX))
            count -= 1
        if count == 0:
            break


@pytest.mark.parametrize("problem", list(applicable_problems(80)), ids=lambda problem: problem.name)
def test_the_best_set_and_orders_reach_the_ordered_optimum(problem):
    arrays = OrderedArrays(problem)
    values = [
        arrays.makespan(offload_order, prefetch_order)
        for chosen in one_gap_sets(problem)
        for offload_order in permutations(chosen)
        for prefetch_order in permutations(chosen)
    ]
    best = min((value for value in values if value != INFEASIBLE), default=None)
    assert best == brute_force(problem, ordered=True)


def test_the_counterexample_needs_254_if_ordered():
    problem = counterexample()
    arrays = OrderedArrays(problem)
    values = [
        arrays.makespan(offload_order, prefetch_order)
        for chosen in one_gap_sets(problem)
        for offload_order in permutations(chosen)
        for prefetch_order in permutations(chosen)
    ]
    assert min(value for value in values if value != INFEASIBLE) == 254


def test_times_by_hand():
    # F_1 needs 4 bytes off the device and F_2 and B_2 one; x_0 has 6 and leaves at once, so F_1
    # runs from 6, F_2 from 7 and B_2 from 8 to 10. Then x_0 may come back, 6 ticks before B_0.
    chain = Chain([1, 1, 1], [2, 2, 2], [6, 4, 1, 1], [0] * 4, forward_workspace=[0, 4, 0])
    problem = Problem("hand", chain, Platform(11, Fraction(1)))
    schedule = ordered_schedule(problem, [0], [0])
    assert [(t.start, t.end) for t in schedule.transfers] == [(0, 6), (10, 16)]
    assert schedule.starts[:4] == (0, 6, 7, 8)
    assert schedule.starts[5] == 16
    assert schedule.makespan == 18


def test_a_late_prefetch_leaves_the_memory_to_operations():
    # Erratum 1 on Prop. 1: taken eagerly, x_0 would come back before B_2 and block it for good.
    chain = Chain([1, 1, 1], [1, 1, 1], [5, 1, 1, 1], [0] * 4, backward_workspace=[0, 0, 5])
    problem = Problem("late", chain, Platform(9, Fraction(1)))
    move = ordered_plan(problem, [0]).moves[-1]
    assert move.kind is Kind.PREFETCH
    assert move.before > 3


def test_a_duplex_link_overlaps_the_directions():
    # v leaves from 40, when o3 has written it, to 50. On a simplex link u returns after that, and
    # delays o5, which would start at 50, by 10; on a duplex link it returns from 40 to 50.
    operations = [Operation(f"o{i}", 10) for i in range(9)]
    tensors = [Tensor("u", 10, (0, 5)), Tensor("v", 10, (3, 8)), Tensor("w", 1, (0, 8), False)]
    trace = Trace(operations, tensors)
    makespans = {
        link: ordered_makespan(Problem("p", trace, Platform(22, Fraction(1), link)), [0, 1])
        for link in Link
    }
    assert makespans == {Link.SIMPLEX: 100, Link.DUPLEX: 90}


def test_the_orders_follow_availability_and_need():
    trace = Trace(
        [Operation(str(i), 1) for i in range(6)],
        [Tensor("z", 1, (1, 4)), Tensor("x", 1, (0, 1, 4)), Tensor("first", 1, (-1, 0, 5))],
    )
    problem = Problem("p", trace, Platform(3, Fraction(1)))
    # "first" opens before the others; of those that open with operation 1, x is written earlier.
    assert ordered_orders(problem, [0, 1, 2]) == ([2, 1, 0], [0, 1, 2])


def test_a_tensor_that_leaves_again_is_offloaded_once() -> None:
    trace = Trace([Operation(str(i), 1) for i in range(6)], [Tensor("x", 3, (0, 2, 4))])
    problem = Problem("p", trace, Platform(3, Fraction(1)))
    schedule = ordered_schedule(problem, [0, 1], [0, 1])
    moves = [(item.kind, item.gap) for item in schedule.transfers]
    assert moves == [(Kind.OFFLOAD, 0), (Kind.PREFETCH, 0), (Kind.PREFETCH, 1)]
    # Written, away and back; read; back again after the fourth operation, for the fifth.
    assert schedule.makespan == ordered_makespan(problem, [0, 1]) == 1 + 3 + 3 + 1 + 3 + 1 + 1
    assert check(problem, schedule) == []
    with pytest.raises(MethodError):
        ordered_schedule(problem, [0, 1], [1, 0])


@pytest.mark.slow
@by_seeds(0, 1500, 150)
def test_tensors_that_leave_again_do_so_within_the_memory(seeds: range) -> None:
    again = 0
    for seed in seeds:
        rng = random.Random(seed)
        problem = mixed_problem(seed, largest=7)
        gaps = problem.trace.gaps
        chosen = [gap for gap in range(len(gaps)) if rng.random() < 0.8]
        orders = ordered_orders(problem, chosen)
        if rng.random() < 0.5:
            orders = orders[0], rng.sample(chosen, len(chosen))
        try:
            schedule = ordered_schedule(problem, *orders)
        except MethodError:
            continue
        assert check(problem, schedule) == [], seed
        plan = schedule.plan(problem.trace)
        assert simulate(problem, plan).makespan <= schedule.makespan
        again += len({gaps[gap].tensor for gap in chosen}) < len(chosen)
    assert again >= 1


def test_an_insufficient_set_is_named_with_the_operation_and_the_bytes():
    chain = Chain([1, 1, 1], [1, 1, 1], [5, 2, 1, 1], [0] * 4, forward_workspace=[0, 0, 9])
    problem = Problem("p", chain, Platform(13, Fraction(1)))
    with pytest.raises(MethodError, match=r"F2 needs 5 bytes off the device.* at most 2 of them"):
        ordered_plan(problem, [1])


def test_what_is_resident_at_the_start_must_fit():
    chain = Chain([1], [1], [5, 1], [0, 0])
    with pytest.raises(MethodError, match="5 bytes are resident at the start"):
        OrderedArrays(Problem("p", chain, Platform(4, Fraction(1))))


def test_orders_of_different_gaps_are_refused():
    chain = Chain([1, 1, 1], [1, 1, 1], [5, 2, 1, 1], [0] * 4)
    problem = Problem("p", chain, Platform(9, Fraction(1)))
    with pytest.raises(MethodError, match="same gaps"):
        ordered_schedule(problem, [0], [1])
    with pytest.raises(MethodError, match="gap 7 does not exist"):
        ordered_schedule(problem, [7], [7])
