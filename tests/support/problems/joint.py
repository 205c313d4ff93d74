"""Tiny problems in which computations may run again, with bounds that our finders prove."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.joint import bound_computing, climb_joint
from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.result import Bound
from offcert.formulations.labels.joint.bound import shortest_execution
from offcert.proofs.joint_document import unpack
from offcert.questions.schedule.problem import Problem, Recompute
from support.oracles.joint import least_time
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem
from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem


def joint_problem(seed: int) -> Problem:
    """Draw a problem of at most six computations, or five where something may leave."""
    rng = random.Random(seed)
    if seed % 2:
        problem = recompute_problem(rng, checkpoint_chain(rng, rng.choice((2, 3))))
    else:
        problem = recompute_problem(rng, random_network(rng, rng.choice((2, 3))))
    assert problem.computed is not None
    return replace(problem, offload=len(problem.computed) < 6 and rng.random() < 0.7)


def left_before_changes(changes: int) -> tuple[Problem, int]:
    """Return a problem in which x has left before it is changed in place, and its least time.

    While A runs from 0 to 5, x leaves, from 0 to 3. Each change takes a tick; then G, for a tick,
    has room only without x, which is back after three more; B takes one: 10 ticks and the changes.
    Whoever forgets on the host what is changed afterwards lets x leave from 5 to 8.
    """
    computations = [Computation("A", 5, repeatable=False)]
    values = [Value("x", 3)]
    for change in range(changes):
        values.append(Value(f"x{change}", 0, False, base=0))
        reads = (0, change) if change else (0,)
        computations.append(Computation(f"F{change}", 1, 0, reads, (change + 1,), False))
    computations += [
        Computation("G", 1, workspace=3, repeatable=False),
        Computation("B", 1, reads=(0, changes), repeatable=False),
    ]
    network = Network(computations, values)
    problem = Problem("left", network, Platform(5, Fraction(1)), recompute=Recompute.ANY)
    return problem, 10 + changes


def made_twice_before_a_change() -> tuple[Problem, int]:
    """Return a problem that needs two copies of x before one is changed, and its least time.

    Beside F there is no room for r, so R runs again after it, and reads x as it was before. A has
    no room after F, beside x' and z: it runs again before. A, R, A, F, R, B: 3 + 2 + 3 + 1 + 2 + 1.
    """
    computations = [
        Computation("A", 3, workspace=5, writes=(0,)),
        Computation("R", 2, reads=(0,), writes=(1,)),
        Computation("F", 1, workspace=4, reads=(0,), writes=(2, 3), repeatable=False),
        Computation("B", 1, reads=(0, 1, 2, 3), repeatable=False),
    ]
    values = [Value("x", 2), Value("r", 4), Value("x'", 0, False, base=0), Value("z", 1)]
    network, platform = Network(computations, values), Platform(9, Fraction(1))
    return Problem("twice", network, platform, recompute=Recompute.ANY, offload=False), 12


def joint_bounds_of(problem: Problem) -> list[Bound]:
    """Return all bounds on the time that our steps prove, the last one the best."""
    search = Search(problem, 60)
    bound_computing(search, Effort(10))
    climb_joint(search, Effort(20))
    return search.bounds


def solvable(first: int) -> Iterator[tuple[Problem, int]]:
    """Yield problems from a seed on that can be executed, and the least time of brute force."""
    for seed in range(first, first + 10_000):
        problem, best = _solved(seed)
        if best is not None:
            yield problem, best


@cache
def _solved(seed: int) -> tuple[Problem, int | None]:
    problem = joint_problem(seed)
    return problem, least_time(problem)


@cache
def joint_proofs(method: str) -> list[tuple[Problem, Bound, int]]:
    """Return problems with a bound of one kind above the computing time, and their least time."""
    known: list[tuple[Problem, Bound, int]] = []
    for problem, best in solvable(0):
        assert problem.computed is not None
        for bound in _bounds_of(problem, method):
            if bound.method == method and bound.value > problem.computed.compute_time:
                known.append((problem, bound, best))
        # Some of them by cases.
        cases = method != "joint-lp" or any("tree" in unpacked(bound) for _, bound, _ in known)
        if len(known) >= 6 and cases:
            break
    return known + (_once() if method == "joint-labels" else [])


def _once() -> list[tuple[Problem, Bound, int]]:
    """Return the same of traces, where everything runs once and the link decides."""
    known: list[tuple[Problem, Bound, int]] = []
    for problem in (mixed_problem(seed, 4) for seed in range(9000, 9600)):
        bound, best = shortest_execution(problem, 20).bound, brute_force(problem)
        if best is not None and bound is not None and best > problem.trace.compute_time:
            known.append((problem, bound, best))
        if len(known) >= 4:
            break
    return known


def _bounds_of(problem: Problem, method: str) -> list[Bound]:
    if method != "joint-labels":
        return joint_bounds_of(problem)
    bound = shortest_execution(problem, 20).bound
    return [] if bound is None else [bound]


def unpacked(bound: Bound) -> dict[str, Any]:
    """Return the document with the multipliers of a bound."""
    document: dict[str, Any] = unpack(bound.details["proof"], "proof")
    return document
