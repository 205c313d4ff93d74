"""Offloading with addresses: against brute force both ways, and the example of the theory page."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

import offcert
from offcert.core.errors import InputError
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.placement.problem import placement_faults
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import placement_problem
from papers.fragmentation.placed_cpsat import longest, solve_placed
from papers.fragmentation.price import price_of_fragmentation
from support.oracles.placed import least_placed_time
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem

# Bytes, first use, last use: at memory 4 without addresses, see docs/theory/placement.md.
ROWS = ((2, 0, 0), (2, 0, 1), (1, 1, 3), (1, 1, 2), (1, 2, 3), (2, 3, 4), (2, 4, 4))


def fragments(durations: tuple[int, ...], link: Link = Link.SIMPLEX) -> Problem:
    trace = Trace(
        [Operation(f"o{o}", duration) for o, duration in enumerate(durations)],
        [
            Tensor(name, size, tuple(sorted({first, last})))
            for name, (size, first, last) in zip("abcdefg", ROWS, strict=True)
        ],
    )
    return Problem("fragments", trace, Platform(4, Fraction(1), link))


def require_placed(problem: Problem, outcome: object) -> None:
    assert outcome.schedule is not None
    assert check(problem, outcome.schedule) == []
    placing = placement_problem(problem, outcome.schedule, problem.platform.memory)
    assert placement_faults(placing, outcome.placement) == []


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6, 7, 8, 9, 13])
def test_without_addresses_it_is_the_atomic_problem(seed: int) -> None:
    problem = mixed_problem(seed, 4)
    outcome = solve_placed(problem, addresses=False, time_limit=60)
    assert outcome.closed
    assert outcome.makespan == brute_force(problem)
    placed = solve_placed(problem, time_limit=60, lower_bound=outcome.lower_bound)
    assert placed.closed
    if placed.schedule is None:
        assert placed.infeasible
    else:
        require_placed(problem, placed)
        assert placed.makespan >= outcome.makespan


@pytest.mark.parametrize(
    ("durations", "without", "placed"),
    [
        # c has to leave and to return while o2 runs: one tick out, one back.
        ((1, 1, 1, 1, 1), 5, 6),
        ((1, 1, 2, 1, 1), 6, 6),
        # While an operation of no duration runs, nothing can.
        ((1, 1, 0, 1, 1), 4, 6),
    ],
)
def test_the_example(durations: tuple[int, ...], without: int, placed: int) -> None:
    problem = fragments(durations)
    price = price_of_fragmentation(problem, time_limit=60)
    assert (price.without.makespan, price.placed.makespan) == (without, placed)
    assert price.closed
    assert price.ticks == placed - without
    require_placed(problem, price.placed)
    assert least_placed_time(problem, placed) == placed
    certificate = price.certificate()
    assert offcert.verify(certificate).valid
    assert certificate.placement is not None
    assert certificate.placement.problem.capacity == 4
    (returns,) = [s for s in certificate.result.schedule.transfers if s.kind == "prefetch"]
    assert problem.trace.tensors[problem.trace.gaps[returns.gap].tensor].name == "c"


def small(seed: int) -> Problem:
    """Return the example, with one thing changed, and up to two tensors that may leave."""
    rng = random.Random(seed)
    durations = tuple(rng.choice((0, 1, 1, 2)) for _ in range(5))
    problem = fragments(durations, rng.choice((Link.SIMPLEX, Link.DUPLEX)))
    tensors = list(problem.trace.tensors)
    if seed % 2:
        index = rng.choice((0, 4, 5, 6))
        uses = tuple(sorted(rng.sample(range(5), 2)))
        tensors[index] = Tensor(tensors[index].name, rng.choice((1, 2)), uses)
    trace = Trace(problem.trace.operations, tensors)
    memory = max(4, trace.least_memory)
    return Problem(f"small-{seed}", trace, Platform(memory, Fraction(1), problem.platform.link))


@pytest.mark.parametrize("seed", range(12))
def test_brute_force_finds_the_same_least_time(seed: int) -> None:
    problem = small(seed)
    outcome = solve_placed(problem, time_limit=60)
    assert outcome.closed
    if outcome.schedule is not None:
        require_placed(problem, outcome)
    most = problem.trace.compute_time + 3
    expected = least_placed_time(problem, most)
    if expected is None:
        assert outcome.makespan is None or outcome.makespan > most
    else:
        assert outcome.makespan == expected


def test_what_has_no_addresses_at_all_is_infeasible() -> None:
    problem = fragments((1, 1, 1, 1, 1))
    tensors = [Tensor(t.name, t.size, t.uses, evictable=False) for t in problem.trace.tensors]
    fixed = Problem("fixed", Trace(problem.trace.operations, tensors), problem.platform)
    price = price_of_fragmentation(fixed, time_limit=60)
    assert price.without.makespan == 5
    assert price.placed.infeasible
    assert price.closed
    assert price.ticks is None
    with pytest.raises(InputError, match="no schedule with addresses"):
        price.certificate()
    less = price_of_fragmentation(fixed.with_memory(3), time_limit=60)
    assert less.without.infeasible


def test_no_schedule_need_be_longer_than_all_that_moves() -> None:
    problem = fragments((1, 1, 1, 1, 1))
    # c out and back, and 5 ticks of computing.
    assert longest(problem) == 7


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"transfers": "fractional"}, "addresses need atomic transfers, not fractional"),
        ({"minimise": "memory"}, "where nothing runs again, in time"),
    ],
)
def test_other_problems_are_refused(change: dict[str, str], sentence: str) -> None:

    with pytest.raises(InputError, match=sentence):
        price_of_fragmentation(replace(fragments((1,) * 5), **change))
