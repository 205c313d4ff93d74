"""Tiny problems in which memory is minimised, with bounds that our finders prove."""

from __future__ import annotations

import random
from collections.abc import Callable
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
from offcert.proofs.kinds.computed import MemoryByTime
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from support.oracles.rematerialisation import RematerialisationOracle
from support.problems.random_networks import checkpoint_chain, random_network

# Cutting says more than what is kept in about one of fifteen problems: in these, first of all.
CUT = (3, 29, 47, 49, 61, 65)


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


def memory_bounds(problem: Problem, only: str | None = None) -> list[Bound]:
    """Return the bounds of all kinds that say something, or those of one kind only."""
    finders: dict[str, Callable[[Problem], Bound | None]] = {
        "least-memory-run": single_run_bound,
        "least-memory-kept": kept_bound,
        "least-memory-cut": above_those_kept,
        "least-memory-by-time": by_time,
        "joint-labels-memory": exact,
    }
    found = (finders[kind](problem) for kind in ([only] if only else finders))
    return [bound for bound in found if bound is not None]


def above_those_kept(problem: Problem) -> Bound | None:
    kept = kept_bound(problem) or single_run_bound(problem)
    return cut_bound(problem, kept.value)


def exact(problem: Problem) -> Bound | None:
    return least_memory_execution(problem, 20, (0, problem.trace.peak_memory)).bound


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
    for seed in CUT if method == "least-memory-cut" else range(10_000):
        problem, best = memory_problem(seed)
        known += ((problem, bound, best) for bound in memory_bounds(problem, method))
        if len(known) >= 6:
            break
    return known
