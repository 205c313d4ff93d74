"""Problems for the outward search: cut somewhere, with their optima."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from offcert.questions.schedule.problem import Problem
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem


class Case(NamedTuple):
    """A problem that is not trivial, on a simplex link; tensors below `least` bytes are free."""

    problem: Problem
    optimum: int
    pivot: int
    least: int
    rng: random.Random


def cases(seeds: Iterable[int], stages: int) -> Iterator[Case]:
    """Yield each problem with up to two pivots; most have no free tensors."""
    for seed in seeds:
        rng = random.Random(seed)
        problem = mixed_problem(seed, stages)
        optimum = brute_force(problem)
        assert optimum is not None
        if problem.platform.duplex or optimum == problem.trace.compute_time:
            continue
        trace = problem.trace
        over = [k for k, demand in enumerate(trace.demand) if demand > problem.platform.memory]
        sizes = [trace.gap_size(gap) for gap in range(len(trace.gaps))]
        for pivot in rng.sample(over, min(2, len(over))):
            yield Case(problem, optimum, pivot, rng.choice([1, 1, 1, *sizes]), rng)


def no_pause() -> None:
    """Never run out of time."""
