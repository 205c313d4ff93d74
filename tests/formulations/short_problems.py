"""Random problems with short horizons, for models whose size grows with time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.trace import Trace
from tests.oracle import brute_force
from tests.random_instances import random_problem, two_rates


def shorten(problem: Problem, factor: int) -> Problem:
    """Divide durations by `factor`, rounding up, and speed the link up by it."""
    trace = problem.trace
    operations = [replace(o, duration=-(-o.duration // factor)) for o in trace.operations]
    platform = replace(
        problem.platform,
        bandwidth=problem.platform.rate(Kind.OFFLOAD) * factor,
        prefetch_bandwidth=problem.platform.rate(Kind.PREFETCH) * factor,
    )
    return replace(problem, network=Trace(operations, trace.tensors), platform=platform)


def unsolved(seed: int, largest: int = 4, factor: int = 7, unequal: bool = False) -> Problem:
    """Return a problem of at most `largest` stages; see `short_problem`."""
    problem = random_problem(seed, largest)
    return shorten(two_rates(problem) if unequal else problem, factor)


@cache
def short_problem(
    seed: int, largest: int = 4, factor: int = 7, unequal: bool = False
) -> tuple[Problem, int]:
    """Return a problem of at most `largest` stages, and its optimum.

    If `unequal`, the directions of its link differ.
    """
    problem = unsolved(seed, largest, factor, unequal)
    best = brute_force(problem)
    assert best is not None
    return problem, best


def mixed_short_problem(seed: int, largest: int = 4, factor: int = 7) -> tuple[Problem, int]:
    """Return `short_problem`, for odd seeds on a link with different rates per direction."""
    return short_problem(seed, largest, factor, unequal=seed % 2 == 1)


def short_problems(first: int, count: int) -> Iterator[tuple[Problem, int]]:
    """Yield problems of all families, both links, and their optima."""
    for seed in range(first, first + count):
        yield mixed_short_problem(seed)


def multi_gap_problems(first: int, count: int) -> Iterator[tuple[Problem, int]]:
    """Yield problems in which some tensor has several gaps and transfers delay operations."""
    seed = first
    while count > 0:
        gaps = unsolved(seed, factor=4).trace.gaps
        if len({gap.tensor for gap in gaps}) < len(gaps):
            problem, best = mixed_short_problem(seed, factor=4)
            if best > problem.trace.compute_time:
                yield problem, best
                count -= 1
        seed += 1
