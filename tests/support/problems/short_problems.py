"""Random problems with short horizons, for models whose size grows with time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache

from offcert.core.errors import MethodError
from offcert.core.platform import Kind, Link
from offcert.core.trace import Trace
from offcert.formulations.labels.pivot.model import nested
from offcert.questions.schedule.problem import Problem
from support.oracles.schedules import brute_force
from support.problems.random_instances import random_problem, two_rates


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


def stretched_problem(seed: int, factor: int) -> tuple[Problem, int]:
    """Return a problem in which everything lasts a multiple of `factor`, and its optimum."""
    problem = unsolved(seed)
    platform = replace(problem.platform, bandwidth=Fraction(1), prefetch_bandwidth=None)
    problem = replace(problem, platform=platform)
    best = brute_force(problem)
    assert best is not None
    trace = problem.trace
    operations = [replace(o, duration=o.duration * factor) for o in trace.operations]
    platform = replace(platform, bandwidth=Fraction(1, factor))
    slow = replace(problem, network=Trace(operations, trace.tensors), platform=platform)
    return slow, factor * best


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


@cache
def pair_problems() -> list[tuple[Problem, int]]:
    """Return 100 problems of all families and their optima, of at most three stages.

    A fifth of them have several gaps a tensor.
    """
    found = [mixed_short_problem(seed, largest=3, factor=9) for seed in range(80)]
    seed = 10_000
    while len(found) < 100:
        problem, best = mixed_short_problem(seed, largest=3, factor=6)
        gaps = problem.trace.gaps
        several = len({gap.tensor for gap in gaps}) < len(gaps)
        if several and problem.trace.compute_time < best <= 24:
            found.append((problem, best))
        seed += 1
    return found


@cache
def simplex_problems() -> list[tuple[Problem, int]]:
    """Return 60 more problems and their optima, with nested gaps and on simplex links."""
    found: list[tuple[Problem, int]] = []
    seed = 1000
    while len(found) < 60:
        problem = unsolved(seed, largest=3, factor=5, unequal=seed % 2 == 1)
        problem = replace(problem, platform=replace(problem.platform, link=Link.SIMPLEX))
        seed += 1
        with suppress(MethodError):
            nested(problem)
            best = brute_force(problem)
            assert best is not None
            if best > problem.trace.compute_time:
                found.append((problem, best))
    return found
