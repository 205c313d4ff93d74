"""Brute force on problems small enough to solve by hand, and against the simulator."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import pytest

from offcert.core.errors import PlanError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.oracles.schedules import brute_force
from support.problems.random_instances import counterexample, mixed_problem, random_problem
from support.seeds import by_seeds


def _problem(
    operations: list[Operation], tensors: list[Tensor], memory: int, link: Link = Link.SIMPLEX
) -> Problem:
    return Problem("hand", Trace(operations, tensors), Platform(memory, Fraction(1), link))


def test_one_tensor_leaves_and_returns_around_a_spike() -> None:
    operations = [Operation("a", 2), Operation("spike", 4, 7), Operation("b", 1)]
    problem = _problem(operations, [Tensor("x", 3, (0, 2))], 7)
    # Out from 2 to 5, spike from 5 to 9, back from 9 to 12, b until 13.
    assert brute_force(problem) == 13
    assert brute_force(problem.with_memory(10)) == 7
    assert brute_force(problem.with_memory(6)) is None


def test_each_direction_has_its_own_rate() -> None:
    operations = [Operation("a", 2), Operation("spike", 4, 7), Operation("b", 1)]
    trace = Trace(operations, [Tensor("x", 3, (0, 2))])
    for link in Link:
        platform = Platform(7, Fraction(3, 2), link, prefetch_bandwidth=Fraction(3, 5))
        # Out from 2 to 4, spike from 4 to 8, back from 8 to 13, b until 14.
        assert brute_force(Problem("hand", trace, platform)) == 14


def test_a_copy_on_the_host_makes_the_second_eviction_free() -> None:
    operations = [Operation("a", 1), Operation("s1", 1, 4), Operation("b", 1)]
    operations += [Operation("s2", 1, 4), Operation("c", 1)]
    problem = _problem(operations, [Tensor("x", 4, (0, 2, 4))], 4)
    # 1 a, 4 out, 1 s1, 4 back, 1 b, 1 s2 at once, 4 back, 1 c.
    assert brute_force(problem) == 17


def test_what_is_resident_at_the_start_must_fit_at_the_start() -> None:
    operations = [Operation("a", 1, 4), Operation("b", 1)]
    tensors = [Tensor("x", 4, (-1, 1)), Tensor("z", 1, (-1, 1), evictable=False)]
    assert brute_force(_problem(operations, tensors, 5)) == 4 + 1 + 4 + 1
    assert brute_force(_problem(operations, tensors, 4)) is None


def test_a_duplex_link_overlaps_directions() -> None:
    """x comes back while z leaves; a simplex link does one after the other."""
    operations = [Operation("a", 1), Operation("s", 1, 5), Operation("w", 0)]
    operations += [Operation("t", 1, 5), Operation("b", 1), Operation("c", 1)]
    tensors = [Tensor("x", 5, (0, 4)), Tensor("z", 5, (2, 5))]
    duplex, simplex = (
        brute_force(_problem(operations, tensors, 10, link)) for link in (Link.DUPLEX, Link.SIMPLEX)
    )
    assert duplex is not None
    assert simplex is not None
    assert duplex <= simplex


def test_counterexample_of_the_notes() -> None:
    assert brute_force(counterexample()) == 219
    assert brute_force(counterexample(), ordered=True) == 254


def _best_simulated(problem: Problem) -> int | None:
    """The best plan of all: every order of every set of moves, every place of every claim.

    Plans and the simulator define what a schedule can be in another way than the oracle does.
    """
    best = None
    trace = problem.trace
    moves = [(kind, gap) for kind in Kind for gap in range(len(trace.gaps))]
    for length in range(len(moves) + 1):
        for order in permutations(moves, length):
            for places in _places(order, trace):
                plan = Plan(
                    Move(kind, gap, before)
                    for (kind, gap), before in zip(order, places, strict=True)
                )
                try:
                    makespan = simulate(problem, plan).makespan
                except PlanError:
                    continue
                best = makespan if best is None else min(best, makespan)
    return best


def _places(order: tuple[tuple[Kind, int], ...], trace: Trace) -> list[tuple[int, ...]]:
    """Return the operations before which each move may come, not decreasing among prefetches."""
    found: list[tuple[tuple[int, ...], int]] = [((), 0)]
    for kind, gap in order:
        closed = trace.gaps[gap].after
        if kind is Kind.OFFLOAD:
            found = [((*places, closed), least) for places, least in found]
        else:
            found = [
                ((*places, before), before)
                for places, least in found
                for before in range(max(least, trace.gaps[gap].before + 1), closed + 1)
            ]
    return [places for places, _ in found]


@pytest.mark.slow
@by_seeds(0, 400, 200)
def test_agrees_with_the_best_of_all_plans(seeds: range) -> None:
    checked = 0
    for seed in seeds:
        problem = mixed_problem(seed + 7000, largest=3)
        if len(problem.trace.gaps) <= 2:
            assert brute_force(problem) == _best_simulated(problem), problem.name
            checked += 1
    assert checked > 50


@pytest.mark.parametrize("seed", range(30))
def test_more_memory_never_hurts(seed: int) -> None:
    problem = random_problem(seed + 8000, largest=4)
    previous = None
    for memory in range(problem.platform.memory, problem.trace.peak_memory + 1, 3):
        makespan = brute_force(problem.with_memory(memory))
        assert makespan is not None
        assert previous is None or makespan <= previous
        previous = makespan
    assert brute_force(problem.with_memory(problem.trace.peak_memory)) == problem.trace.compute_time
