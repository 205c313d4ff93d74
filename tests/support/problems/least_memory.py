"""Tiny problems in which memory is minimised, with bounds that our finders prove."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from functools import cache

from offcert.core.platform import Link, Platform
from offcert.core.result import Bound
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.formulations.joint.bound import joint_bounds
from offcert.formulations.labels.joint.bound import least_memory_execution
from offcert.formulations.rematerialisation.least_memory import (
    cut_bound,
    kept_bound,
    single_run_bound,
)
from offcert.proofs.claims import proved
from offcert.proofs.kinds.memory import MemoryByTime
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from support.oracles.rematerialisation import RematerialisationOracle
from support.problems.random_networks import checkpoint_chain, random_network


def memory_problem(seed: int) -> tuple[Problem, int]:
    """Draw a problem of recomputation alone; return the least memory by brute force, too."""
    rng = random.Random(seed)
    network = checkpoint_chain(rng, 2) if seed % 4 == 0 else random_network(rng, rng.choice((2, 3)))
    problem = Problem(
        "memory",
        network,
        Platform(5, Fraction(1), rng.choice(tuple(Link))),
        recompute=Recompute.ANY,
        offload=False,
        minimise=Minimise.MEMORY,
    )
    computed = problem.computed
    assert computed is not None
    if seed % 2:
        deadline = computed.compute_time + rng.choice((0, 1, 3, 8))
        problem = replace(problem, deadline=deadline)
    least = RematerialisationOracle(computed).least_memory(problem.deadline)
    assert least is not None
    return problem, least


def memory_bounds(problem: Problem) -> list[Bound]:
    """Return the bounds of all kinds that say something."""
    first = single_run_bound(problem)
    kept = kept_bound(problem)
    known = first.value if kept is None else kept.value
    exact = least_memory_execution(problem, 20, (0, problem.trace.peak_memory)).bound
    found = (first, kept, cut_bound(problem, known), by_time(problem), exact)
    return [bound for bound in found if bound is not None]


def by_time(problem: Problem) -> Bound | None:
    """Return the bound in bytes of the largest limit at which one on time exceeds the deadline."""
    if problem.deadline is None:
        return None
    for limit in range(problem.trace.peak_memory, 0, -1):
        platform = replace(problem.platform, memory=limit)
        timed = replace(problem, platform=platform, minimise=Minimise.TIME, deadline=None)
        if infeasibility(timed) is not None:
            return None
        for bound in joint_bounds(timed, 5.0):
            if bound.value > problem.deadline:
                proof = MemoryByTime(
                    limit=limit, method=bound.method, ticks=bound.value, details=dict(bound.details)
                )
                return proved("least-memory-by-time", limit + 1, proof)
    return None


@cache
def memory_proofs(method: str) -> list[tuple[Problem, Bound, int]]:
    """Return problems with a bound of one kind, and their least memory."""
    known: list[tuple[Problem, Bound, int]] = []
    for seed in range(10_000):
        problem, best = memory_problem(seed)
        for bound in memory_bounds(problem):
            if bound.method == method:
                known.append((problem, bound, best))
        if len(known) >= 6:
            break
    return known
