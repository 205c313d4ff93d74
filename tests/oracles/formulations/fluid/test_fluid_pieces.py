"""Amounts become pieces: rounding keeps what it must, layouts fit the link and never run ahead."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.fluid.pieces import Amounts, exact_amounts, fluid_schedule
from offcert.formulations.fluid.program import FixedDecisions, FluidProgram, Rules
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from support.problems.random_instances import random_problem
from support.seeds import by_seeds

LENGTH = 24


def leave_and_return(rng: random.Random, count: int) -> tuple[Problem, Amounts]:
    """Tensors that all leave and return within one operation of a duplex link, which is full.

    Their leads (bytes that have left and not come back) are often 0 at its start or end.
    """
    out = cut(rng, count)
    back = cut(rng, count)
    tensors, copied, returned = [], {}, {}
    for i in range(count):
        least = max(0, back[i] - out[i])
        start = least + rng.choice((0, 0, 0, 1))
        end = start + out[i] - back[i]
        size = start + out[i] + rng.choice((0, 2))
        tensors.append(Tensor(f"t{i}", size, (-1, 1)))
        copied[i] = [start, start + out[i], size, size]
        returned[i] = [0, back[i], size, size]
        assert end >= 0
    operations = [Operation("long", LENGTH), Operation("last", 1)]
    platform = Platform(10**6, Fraction(1), Link.DUPLEX)
    problem = Problem("full", Trace(operations, tensors), platform, Transfers.INTERRUPTIBLE)
    return problem, Amounts(
        {i: list(map(Fraction, amounts)) for i, amounts in copied.items()},
        {i: list(map(Fraction, amounts)) for i, amounts in returned.items()},
    )


def cut(rng: random.Random, count: int) -> list[int]:
    """Cut the length of the operation into `count` positive parts."""
    places = sorted(rng.sample(range(1, LENGTH), count - 1))
    return [b - a for a, b in zip([0, *places], [*places, LENGTH], strict=True)]


@pytest.mark.slow
@by_seeds(0, 300, 150)
def test_a_full_duplex_link_has_a_layout_in_which_nothing_returns_too_soon(seeds: range) -> None:
    needed: dict[int, int] = {}
    for seed in seeds:
        rng = random.Random(seed)
        problem, amounts = leave_and_return(rng, rng.randint(3, 4))
        idle = [500, 500]
        for parts in (1, 3, 9, 27, 81):
            schedule = fluid_schedule(problem, idle, amounts, parts)
            assert schedule is not None
            faults = check_fluid(problem, schedule)
            assert all("have come back" in fault for fault in faults)
            if not faults:
                break
        else:
            raise AssertionError(f"no layout for seed {seed}")
        needed[parts] = needed.get(parts, 0) + 1
    # One part is often enough, but not always.
    assert needed[1] >= 117
    assert sum((count for parts, count in needed.items() if parts > 1)) >= 2


def test_what_does_not_fit_the_link_has_no_layout() -> None:
    problem, amounts = leave_and_return(random.Random(1), 3)
    assert fluid_schedule(problem, [0, 500], amounts) is None or amounts.copied[0][0] == 0
    simplex = replace(problem, platform=Platform(10**6, Fraction(1)))
    # Both directions are full, so one alone cannot serve them.
    assert fluid_schedule(simplex, [500, 500], amounts) is None


def test_pieces_without_a_pause_are_joined() -> None:
    operations = [Operation("a", 2), Operation("b", 2), Operation("c", 1)]
    network = Trace(operations, [Tensor("x", 4, (-1, 2))])
    problem = Problem("p", network, Platform(9, Fraction(1)), Transfers.INTERRUPTIBLE)
    amounts = Amounts(
        {0: [Fraction(k) for k in (0, 2, 2, 4, 4, 4)]},
        {0: [Fraction(k) for k in (0, 0, 0, 0, 4, 4)]},
    )
    schedule = fluid_schedule(problem, [0, 0, 4], amounts)
    assert schedule is not None
    found = [(p.kind, p.start, p.end, p.size) for p in schedule.pieces]
    assert found == [(Kind.OFFLOAD, 0, 4, 4), (Kind.PREFETCH, 4, 8, 4)]
    assert check_fluid(problem, schedule) == []


@by_seeds(0, 60, 30)
def test_rounding_keeps_amounts_growing_whole_and_in_step(seeds: range) -> None:
    """Whatever a solver returns, even nonsense, only link and memory may end up violated."""
    rounded = 0
    for seed in seeds:
        problem = random_problem(seed, 4)
        for fractional in (False, True):
            count = len(problem.trace)
            rules = Rules(fractional, False, False, (0,) * count)
            gaps = frozenset(g for g in range(len(problem.trace.gaps)) if (g + seed) % 3)
            decisions = FixedDecisions(None if fractional else gaps, None, (5,) * count)
            program = FluidProgram(problem, rules, decisions)
            rng = random.Random(seed)
            values = [rng.uniform(-0.1, 1.2) * min(high, 9) for high in program.model.high]
            amounts = exact_amounts(program, values, 6)
            for gap, back in amounts.returned.items():
                size = problem.trace.gap_size(gap)
                left = amounts.copied[problem.trace.gaps[gap].tensor]
                for series in (back, left):
                    assert series == sorted(series)
                    assert series[0] >= 0
                    assert series[-1] <= size
                assert all(b <= c for b, c in zip(back, left, strict=True))
                assert fractional or back[2 * problem.trace.gaps[gap].after] == size
                rounded += 1
            if not fractional:
                assert set(amounts.returned) == gaps
    assert rounded >= 77
