"""Ways found by beams can be executed, and orders made of two of them are schedules."""

import random
from fractions import Fraction

import pytest

from benchmarks.chains import cnn_chain
from offcert.core.errors import MethodError
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.labels.ends.alone import SideSearch
from offcert.formulations.labels.ends.heads import heads_bound
from offcert.formulations.labels.ends.orders import good_way
from offcert.formulations.labels.ends.side import HeadSide, back, front, only
from offcert.heuristics.orders.ordered import ordered_schedule
from offcert.questions.schedule.check import check
from support.oracles.schedules import brute_force
from support.oracles.side_sequences import end_of, least_end, random_side
from support.problems.random_instances import mixed_problem
from support.seeds import by_seeds

ANY = 2**60


def executed(side: HeadSide, way: tuple[int, ...]) -> int | None:
    items = {item.gap: item for item in side.items}
    return end_of(side, tuple(items[gap] for gap in way), strict=True)


@pytest.mark.parametrize("bandwidth", [Fraction(1), Fraction(2, 3)])
def test_a_wide_beam_finds_the_least_end(bandwidth: Fraction) -> None:
    rng = random.Random(2)
    narrow_is_worse = 0
    for _ in range(150):
        side = random_side(rng, bandwidth)
        best = least_end(side, strict=True)
        found = good_way(SideSearch(side), 500, 0)
        assert found is not None
        assert found[0] == best == executed(side, found[1])
        narrow = good_way(SideSearch(side), 1, 0)
        if narrow is None:
            narrow_is_worse += 1
        else:
            assert narrow[0] == executed(side, narrow[1])
            narrow_is_worse += narrow[0] > best
    assert narrow_is_worse > 10


@by_seeds(300, 420, 30)
def test_ways_along_both_sides_of_any_operation_can_be_executed(seeds: range) -> None:
    found = given = none = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        required = required_absent(problem, subset_sum=True)
        for pivot in (o for o, need in enumerate(required) if need > 0):
            for side in (front(problem, required, pivot), back(problem, required, pivot)):
                if len(side.items) > 5:
                    continue
                way = good_way(SideSearch(side), 300, 1)
                if way is None:
                    none += 1
                    assert not any(side.items) or side.required[-1] > 0
                    continue
                assert executed(side, way[1]) == way[0] == least_end(side, strict=True)
                found += 1
                kept = only(side, set(way[1]))
                again = good_way(SideSearch(kept), 300, 2)
                assert again is not None
                assert sorted(again[1]) == sorted(way[1])
                assert executed(kept, again[1]) == again[0] == least_end(kept, strict=True)
                given += again[0] < ANY
    assert min(found, given) >= 54


@by_seeds(3000, 3060, 30)
def test_orders_are_schedules_no_shorter_than_the_bound(seeds: range) -> None:
    tried = optimal = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        optimum = brute_force(problem)
        assert optimum is not None
        outcome = heads_bound(problem, upper_bound=ANY, time_limit=30, max_labels=10_000)
        for orders in outcome.orders:
            try:
                schedule = ordered_schedule(problem, orders.offloads, orders.prefetches)
            except MethodError:
                continue
            assert check(problem, schedule) == []
            assert schedule.makespan >= optimum >= outcome.lower_bound
            tried += 1
            optimal += schedule.makespan == optimum
    assert tried >= 15
    assert optimal >= 13


@pytest.mark.slow
def test_on_a_chain_of_fifty_stages_the_orders_meet_the_bound() -> None:
    problem = cnn_chain(50, 1)
    problem = problem.with_memory(problem.memory_at(Fraction(0)))
    outcome = heads_bound(problem, upper_bound=ANY, time_limit=60, max_labels=2_000)
    ends = [orders.end for orders in outcome.orders]
    assert ends == sorted(ends, reverse=True)
    best = outcome.orders[-1]
    schedule = ordered_schedule(problem, best.offloads, best.prefetches)
    assert check(problem, schedule) == []
    assert outcome.lower_bound <= schedule.makespan == best.end
    assert schedule.makespan < outcome.lower_bound * 1.001
    # Nothing is said about what is no better than what is known.
    known = heads_bound(problem, upper_bound=best.end, time_limit=60, max_labels=2_000)
    assert all(orders.end < best.end for orders in known.orders)
