"""Cases about how many of several computations run again: against brute force, and forged."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from benchmarks.fuzz_checker import MODULE
from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.result import Bound
from offcert.formulations.joint.bound import JointCuts
from offcert.formulations.joint.room import Grid, grid_of
from offcert.proofs.joint_document import pack, unpack
from offcert.proofs.kinds.multipliers import JointProof
from offcert.questions.schedule.files import problem_to_json
from offcert.questions.schedule.problem import Problem
from offcert.verification.findings import recheck
from offcert.verification.joint.verifier import proved_by
from offcert.verification.limits import UNLIMITED
from support.oracles.joint import least_time
from support.seeds import by_seeds


def alike(seed: int) -> Problem:
    """Return a problem in which two or three computations do the same, and little fits beside S."""
    rng = random.Random(seed)
    copies, size, duration = rng.randint(2, 3), rng.randint(2, 6), rng.randint(2, 9)
    memory = copies * size
    made = [Computation(f"A{n}", duration, writes=(n,)) for n in range(copies)]
    made += [
        Computation("S", rng.randint(1, 4), memory - rng.randint(0, 2), repeatable=False),
        Computation("D", rng.randint(1, 20), reads=tuple(range(copies)), repeatable=False),
    ]
    platform = Platform(memory, Fraction(rng.randint(1, 3), 2), rng.choice(list(Link)))
    values = [Value(f"x{n}", size) for n in range(copies)]
    return Problem("alike", Network(made, values), platform, recompute="any")


def cut_and_counted(problem: Problem) -> tuple[Bound, Bound]:
    """Return the bounds of a cut where S starts, without cases and with them."""
    network = problem.computed
    assert network is not None
    grid, cuts = grid_of(network, (2 * (len(network) - 2),)), JointCuts(problem)
    plain, found = cuts.cut(grid, 60), cuts.counted(grid, 60)
    assert plain is not None
    assert found is not None
    return plain, found


@pytest.mark.slow
def test_counting_exceeds_no_optimum_and_says_more_at_times() -> None:
    more = 0
    for problem in map(alike, range(24)):
        plain, found = cut_and_counted(problem)
        best = least_time(problem)
        assert recheck(found, problem) is None
        assert best is not None
        assert plain.value <= found.value <= best, problem
        more += plain.value < found.value
    assert more >= 3


def with_tree(found: Bound, tree: list[Any], value: int | None = None) -> Bound:
    """Return a bound whose proof has another tree."""
    document = unpack(found.details["proof"], "proof")
    listed = document["multipliers"] if "tree" in document else [document]
    details = dict(found.details) | {"proof": pack({"multipliers": listed, "tree": tree})}
    return replace(found, details=details, value=found.value if value is None else value)


def proved_twice(problem: Problem, found: Bound) -> int:
    """Return what a proof comes to, by the verifier and by the checker in one file."""
    value = proved_by(problem, JointProof.read(found.details), UNLIMITED.begin())
    assert MODULE.joint(MODULE.Problem(problem_to_json(problem)), found.details) == value
    return value


@pytest.mark.slow
@by_seeds(0, 24, 8)
def test_no_tree_of_counts_proves_more_than_the_optimum(seeds: range) -> None:
    for seed in seeds:
        rng, problem = random.Random(seed), alike(seed)
        _, found = cut_and_counted(problem)
        best = least_time(problem)
        assert best is not None
        assert problem.computed is not None
        leaves = len(unpack(found.details["proof"], "proof").get("multipliers", "1"))
        copies = len(problem.computed) - 2
        node = [1, rng.randrange(copies), *range(copies)]
        for _ in range(5):
            tree = [node, rng.randrange(leaves), rng.randrange(leaves)]
            assert -best - 1000 < proved_twice(problem, with_tree(found, tree)) <= best


@cache
def example() -> tuple[Problem, Bound]:
    """Return the example of the theory page, and its bound by two cases."""
    made = [Computation(f"A{n}", 10, writes=(n,)) for n in range(4)]
    made += [
        Computation("S", 5, workspace=64, repeatable=False),
        Computation("T", 100, repeatable=False),
        Computation("D", 1, reads=(0, 1, 2, 3), repeatable=False),
    ]
    network = Network(made, [Value(f"x{n}", 16) for n in range(4)])
    problem = Problem("counted", network, Platform(64, Fraction(1)), recompute="any")
    grid = Grid(network, (8,), ())
    found = JointCuts(problem).counted(grid, 60)
    assert found is not None
    return problem, found


def test_it_is_one_run_or_two() -> None:
    problem, found = example()
    assert (found.value, recheck(found, problem)) == (164, None)
    assert recheck(replace(found, value=165), problem) is not None


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ([[1, 1, 0, 1, 2, 3], 0], "proof.tree ends before all cases are there"),
        ([[1, 1, 0], 0, 1], "proof.tree[0] must be a span and a computation, or a number, not"),
        ([[1, 1, 1, 0], 0, 1], "proof.tree[0]: computations must increase, not"),
        ([[1, 1, 0, 0], 0, 1], "proof.tree[0]: computations must increase, not"),
        ([[1, 4, 0, 1, 2, 3], 0, 1], "proof.tree[0] is decided above it"),
        ([[1, 1, 0, 1], [1, 1, 0, 1], 0, 0, 1], "proof.tree[1] is decided above it"),
        ([[1, 1, 0, 1], [1, 0, 1, 2], 0, 0, 1], "proof.tree[1]: some of these are decided with"),
        ([[1, 1, 0, 1], [1, 0], 0, 0, 1], "proof.tree[1]: some of these are decided with others"),
        ([[1, 1, 3, 4], 0, 1], "proof.tree[0]: computation 4 does not run again in span 1"),
        ([[0, 1, 0, 1], 0, 1], "proof.tree[0]: computation 0 does not run again in span 0"),
        # The other two cases: no run, or at least one.
        ([[1, 0, 0, 1, 2, 3], 0, 1], "the document says"),
        ([[1, 1, 0, 1, 2, 3], 1, 0], "the document says"),
    ],
)
def test_cases_that_are_none_are_refused_with_their_place(tree: list[Any], fault: str) -> None:
    problem, found = example()
    said = recheck(with_tree(found, tree), problem)
    assert said is not None
    assert said.startswith(fault)
