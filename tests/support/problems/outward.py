"""Problems for the outward search: cut somewhere, with their optima."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from offcert.core.platform import Link
from offcert.questions.schedule.problem import Problem
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem


class Case(NamedTuple):
    """A problem that is not trivial; tensors below `least` bytes are free."""

    problem: Problem
    optimum: int
    pivot: int
    least: int
    rng: random.Random


def on_duplex(problem: Problem, rng: random.Random) -> Problem:
    """Return the problem on a duplex link, which may be faster or slower on the way back."""
    rate = problem.platform.bandwidth
    back = rate * rng.choice((Fraction(1, 2), Fraction(1), Fraction(1), Fraction(3, 2)))
    platform = replace(problem.platform, link=Link.DUPLEX, prefetch_bandwidth=back)
    return replace(problem, platform=platform)


def cases(seeds: Iterable[int], stages: int, *, duplex: bool = False) -> Iterator[Case]:
    """Yield each problem on a link of that kind with up to two pivots; few have free tensors."""
    for seed in seeds:
        rng = random.Random(seed)
        problem = mixed_problem(seed, stages)
        if duplex:
            problem = on_duplex(problem, rng)
        optimum = brute_force(problem)
        assert optimum is not None
        if problem.platform.duplex != duplex or optimum == problem.trace.compute_time:
            continue
        trace = problem.trace
        over = [k for k, demand in enumerate(trace.demand) if demand > problem.platform.memory]
        sizes = [trace.gap_size(gap) for gap in range(len(trace.gaps))]
        for pivot in rng.sample(over, min(2, len(over))):
            yield Case(problem, optimum, pivot, rng.choice([1, 1, 1, *sizes]), rng)


def no_pause() -> None:
    """Never run out of time."""
