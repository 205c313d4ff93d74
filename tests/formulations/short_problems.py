"""Random problems with short horizons, for models whose size grows with time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from offcert.core.problem import Problem
from offcert.core.trace import Trace
from tests.oracle import brute_force
from tests.random_instances import random_problem


def shorten(problem: Problem, factor: int) -> Problem:
    """Divide durations by `factor`, rounding up, and speed the link up by it."""
    trace = problem.trace
    operations = [replace(o, duration=-(-o.duration // factor)) for o in trace.operations]
    platform = replace(problem.platform, bandwidth=problem.platform.bandwidth * factor)
    return replace(problem, network=Trace(operations, trace.tensors), platform=platform)


def unsolved(seed: int, largest: int = 4, factor: int = 7) -> Problem:
    """Return a problem of at most `largest` stages."""
    return shorten(random_problem(seed, largest), factor)


@cache
def short_problem(seed: int, largest: int = 4, factor: int = 7) -> tuple[Problem, int]:
    """Return a problem of at most `largest` stages, and its optimum."""
    problem = unsolved(seed, largest, factor)
    best = brute_force(problem)
    assert best is not None
    return problem, best


def short_problems(first: int, count: int) -> Iterator[tuple[Problem, int]]:
    """Yield problems of all families, both links, and their optima."""
    for seed in range(first, first + count):
        yield short_problem(seed)


def multi_gap_problems(first: int, count: int) -> Iterator[tuple[Problem, int]]:
    """Yield problems in which some tensor has several gaps and transfers delay operations."""
    seed = first
    while count > 0:
        gaps = unsolved(seed, factor=4).trace.gaps
        if len({gap.tensor for gap in gaps}) < len(gaps):
            problem, best = short_problem(seed, factor=4)
            if best > problem.trace.compute_time:
                yield problem, best
                count -= 1
        seed += 1
