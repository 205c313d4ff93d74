"""What repeats in a network, and doing in equal copies what is done in one of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from offcert.core.compiled import compiled
from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.program import Program, Segment
from offcert.heuristics.joint.repeats import Repeats, repeats_of, spread
from offcert.heuristics.joint.starts import _copies
from offcert.heuristics.joint.state import JointState, new_state, program_of, state_of
from offcert.heuristics.joint.tables import Tables, tables_of
from offcert.questions.schedule.problem import Problem, Recompute
from support.problems.random_instances import seeded


def layered(layers: int, last_duration: int = 3) -> Problem:
    """A stem, layers of three computations, and a head; the backward pass is one computation."""
    computations = [Computation("stem", 7, writes=(0,))]
    for layer in range(layers):
        own = 1 + 3 * layer
        ticks = last_duration if layer == layers - 1 else 3
        for step, duration in enumerate((1, 2, ticks)):
            computations.append(
                Computation(f"{layer}.{step}", duration, 0, (own + step - 1,), (own + step,))
            )
    count = len(computations)
    computations.append(Computation("head", 5, 0, tuple(range(count)), (), False))
    # The stem makes as much as the last computation of each layer.
    network = Network(computations, [Value(f"v{v}", (4, 8, 2)[v % 3]) for v in range(count)])
    return Problem("layers", network, Platform(40, Fraction(1)), recompute=Recompute.ANY)


@compiled
def _spread(
    tables: Tables, repeats: Repeats, before: JointState, state: JointState, parts: int, seed: int
) -> bool:
    np.random.seed(seed)
    return spread(tables, repeats, before, state, parts)


def test_layers_are_found_with_the_values_that_they_make() -> None:
    repeats = repeats_of(tables_of(layered(4)))
    assert (repeats.first.tolist(), repeats.period.tolist()) == ([1], [3])
    assert repeats.copies.tolist() == [4]
    assert repeats.value.tolist() == list(range(1, 13))
    assert repeats.home.tolist() == [-1, *[0] * 12, -1]
    assert repeats.maker.tolist() == list(range(13))


def test_a_layer_that_takes_longer_is_no_copy() -> None:
    repeats = repeats_of(tables_of(layered(4, last_duration=4)))
    assert repeats.copies.tolist() == [3]
    assert repeats.home.tolist() == [-1, *[0] * 9, *[-1] * 4]


def test_copies_begin_where_segments_may() -> None:
    # The stem is equal to the last of each layer now: copies may begin with it, segments may not.
    problem = layered(3)
    network = problem.computed
    assert network is not None
    stem = replace(network.computations[0], duration=3)
    values = [replace(network.values[0], size=network.values[3].size), *network.values[1:]]
    changed = Network([stem, *network.computations[1:]], values)
    problem = replace(problem, network=changed)
    assert repeats_of(tables_of(problem)).first.tolist() == [0]
    ranges = [(first, first + 2) for first in (1, 4, 7)]
    assert repeats_of(tables_of(problem, ranges)).first.tolist() == [1]


@pytest.mark.slow
def test_all_layers_do_what_one_does() -> None:
    tables = tables_of(layered(4))
    repeats = repeats_of(tables)
    before = state_of(Program([Segment(2, 3)]), tables)
    model = Segment(4, 6, (5,), (Segment(6, 6),))
    state = state_of(Program([Segment(2, 3), model]), tables)
    assert before is not None
    assert state is not None
    state.stays[[4, 11]] = 1
    assert _spread(tables, repeats, before, state, 1, 0)
    segments = [
        Segment(first, first + 2, (first + 1,), (Segment(first + 2, first + 2),))
        for first in (1, 4, 7, 10)
    ]
    assert program_of(state) == Program(segments)
    # The first value of the model may not leave; what was done elsewhere is done no more.
    assert np.flatnonzero(state.stays).tolist() == [1, 4, 7, 10]


def test_what_is_changed_in_no_copy_stays_there() -> None:
    tables = tables_of(layered(4))
    before, state = new_state(tables), new_state(tables)
    state.stays[0] = 1
    assert not _spread(tables, repeats_of(tables), before, state, 1, 0)
    assert np.flatnonzero(state.stays).tolist() == [0]
    # Nothing has been changed at all.
    assert not _spread(tables, repeats_of(tables), before, before.copy(), 1, 0)


def test_starts_have_a_segment_for_each_of_many_layers() -> None:
    spans = [(1 + 3 * layer, 3 + 3 * layer) for layer in range(8)]
    tables = tables_of(layered(8), spans)
    assert _copies(tables) == spans
    # One layer may be none; and seven are too few.
    tables = tables_of(layered(8), spans[:-1])
    assert _copies(tables) == []
    tables = tables_of(layered(7), spans[:-1])
    assert _copies(tables) == []


def _random_state(tables: Tables, seed: int) -> JointState:
    """Return segments inside of each other or apart, anything kept, and anything that stays."""
    rng = seeded(seed)
    state = new_state(tables)
    chosen: list[tuple[int, int]] = []
    for _ in range(rng.randint(1, 9)):
        first = rng.randint(0, 11)
        span = (first, min(12, first + rng.randint(0, 5)))
        if span not in chosen and all(_apart(span, other) for other in chosen):
            chosen.append(span)
    chosen.sort(key=lambda span: (span[0], -span[1]))
    for index, (first, last) in enumerate(chosen):
        state.first[index], state.last[index] = first, last
    state.number[0] = len(chosen)
    state.kept[:13] = [rng.randint(0, 1) for _ in range(13)]
    state.stays[:] = [rng.randint(0, 1) for _ in state.stays]
    return state


def _apart(one: tuple[int, int], other: tuple[int, int]) -> bool:
    (_, b), (c, d) = sorted((one, other), key=lambda span: (span[0], -span[1]))
    return b < c or d <= b


def _spans(state: JointState) -> list[tuple[int, int]]:
    count = int(state.number[0])
    return list(zip(state.first[:count].tolist(), state.last[:count].tolist(), strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_what_results_is_a_program_in_which_copies_do_as_the_model(seed: int) -> None:
    tables = tables_of(layered(4))
    before = _random_state(tables, seed)
    state = before.copy()
    changed = seeded(seed).randint(1, 12)
    state.kept[changed] = 1 - state.kept[changed]
    given = state.copy()
    assert _spread(tables, repeats_of(tables), before, state, seed % 4, seed)
    spans = _spans(state)
    assert spans == sorted(set(spans), key=lambda span: (span[0], -span[1]))
    assert all(_apart(*pair) for pair in combinations(spans, 2))
    own = (changed - 1) // 3
    for copy in range(4):
        here = slice(1 + 3 * copy, 4 + 3 * copy)
        others = [
            other
            for other in range(4)
            if np.array_equal(state.kept[here], given.kept[1 + 3 * other : 4 + 3 * other])
            and np.array_equal(state.stays[here], given.stays[1 + 3 * other : 4 + 3 * other])
        ]
        # It does what it did, or what one of the copies of the model's tile does.
        assert set(others) & {copy, *range(own, own + 4)}
    # What lies outside of all copies is as it was.
    assert state.kept[0] == given.kept[0]
    assert state.stays[0] == given.stays[0]
