"""Programs of nested segments: on chains the optimal checkpoints, elsewhere among the ranges."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import NoPlanError
from offcert.core.platform import Platform
from offcert.heuristics.checkpoint.persistent import persistent
from offcert.heuristics.joint.annealing import alike
from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.nested import nested
from offcert.heuristics.joint.parts import parts_of
from offcert.heuristics.joint.starts import starts
from offcert.heuristics.joint.state import UNCOVERED, JointState, new_work, program_of, state_of
from offcert.heuristics.joint.tables import Tables, tables_of
from offcert.questions.schedule.problem import Problem, Recompute
from support.problems.random_instances import seeded
from support.problems.random_networks import checkpoint_chain, recompute_problem
from support.problems.residual_networks import residual_problem


def least(tables: Tables) -> float | None:
    """Return the ticks of the shortest program that fits, or None."""
    work = new_work(tables)
    found = []
    for state in nested(tables, parts_of(tables), work):
        ticks = evaluate(tables, state, work, 0.0)
        if not work.facts[UNCOVERED]:
            found.append(ticks)
    return min(found, default=None)


@pytest.mark.parametrize("seed", range(60))
def test_on_chains_they_are_the_optimal_checkpoints(seed: int) -> None:
    rng = seeded(seed)
    chain = checkpoint_chain(rng, rng.randint(3, 9))
    problem = replace(recompute_problem(rng, chain), offload=False)
    try:
        strategy = persistent(chain, problem.platform.memory, slots=None)
    except NoPlanError:
        assert least(tables_of(problem)) is None
        return
    assert least(tables_of(problem)) == strategy.expand(chain.network()).trace.compute_time


def unit_chain(stages: int, memory: int) -> Problem:
    """Return a chain all of whose operations take a tick, and whose values take a byte."""
    ones = (1,) * stages
    chain = CheckpointChain(ones, ones, (1,) * (stages + 1), ones, (1,) * (stages + 1))
    network = chain.network()
    return Problem(
        "chain", network, Platform(memory, Fraction(1)), recompute=Recompute.ANY, offload=False
    )


def test_they_fit_where_segments_beside_each_other_do_not() -> None:
    tables = tables_of(unit_chain(40, 8))
    work = new_work(tables)
    best = starts(tables, alike(tables), work, 1e3, 1)[0]
    evaluate(tables, best, work, 1.0)
    assert not work.facts[UNCOVERED]
    assert any(segment.inner for segment in program_of(best).segments)


def states(
    problem: Problem, ranges: list[tuple[int, int]] | None
) -> tuple[Tables, list[JointState]]:
    tables = tables_of(problem, ranges)
    return tables, list(nested(tables, parts_of(tables), new_work(tables)))


@pytest.mark.parametrize("part", [Fraction(1, 3), Fraction(1, 2)])
def test_segments_are_among_the_ranges(part: Fraction) -> None:
    problem = residual_problem(5, part)
    ranges = [(first, first + length) for first in range(0, 12, 2) for length in (1, 3, 7)]
    tables, found = states(problem, ranges)
    usable = set(zip(tables.range_first.tolist(), tables.range_last.tolist(), strict=True))
    assert found
    for state in found:
        count = int(state.number[0])
        spans = set(zip(state.first[:count].tolist(), state.last[:count].tolist(), strict=True))
        assert spans <= usable
        assert len(spans) == count
        again = state_of(program_of(state), tables)
        assert again is not None
        assert all(map(np.array_equal, again, state))


def test_where_no_segment_may_be_there_is_no_program() -> None:
    assert states(residual_problem(5, Fraction(1, 2)), [])[1] == []
