"""Simulated annealing over programs and what leaves: random changes, compiled, in batches."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import FloatArray, IntArray, compiled, inlined
from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.repeats import Repeats, repeats_of, spread
from offcert.heuristics.joint.segments import (
    add_segment,
    copy_stretch,
    join_segments,
    rebuild,
    remove_segment,
    shift_boundary,
    split_segment,
)
from offcert.heuristics.joint.state import GAPS, UNCOVERED, JointState, Scratch, assign, new_work
from offcert.heuristics.joint.tables import COMPUTE, OFFLOAD, Tables

# Shares of the changes of each kind: of kept computations, of values that may leave, and of
# segments; and draws in search of one. Arbitrary.
_KEEP, _STAY = 0.47, 0.16
_SHIFT, _ADD, _ADD_LIKE, _REBUILD, _REMOVE, _SPLIT = 0.12, 0.05, 0.04, 0.03, 0.04, 0.05
_TRIES = 8
# Values read from which on a computation counts as one that reads many. Arbitrary.
_MANY = 3


class Alike(NamedTuple):
    """Computations in classes of the same shape, and what each of them is worth."""

    # One entry a computation. Ticks that keeping it saves, for each byte that it and those that run
    # with it write.
    worth: FloatArray
    # One entry a computation. Its class, by how many values it reads, writes and changes.
    shape: IntArray
    # ``members[first[c]:first[c + 1]]`` are the computations of class `c`.
    first: IntArray
    members: IntArray


def alike(tables: Tables) -> Alike:
    """Return the classes of a problem's computations, and their worth."""
    classes: dict[tuple[int, ...], list[int]] = defaultdict(list)
    count = len(tables.duration)
    written = [
        int(tables.size[tables.write[slice(*row)]].sum())
        for row in pairwise(tables.write_first.tolist())
    ]
    worth = np.zeros(count)
    for index in range(count):
        group = tables.group[tables.group_first[index] : tables.group_first[index + 1]].tolist()
        size = sum(written[each] for each in group)
        worth[index] = tables.duration[group].sum() / max(1, size)
        reads = int(tables.read_first[index + 1] - tables.read_first[index])
        writes = int(tables.write_first[index + 1] - tables.write_first[index])
        again, place = int(tables.repeatable[index]), group.index(index)
        classes[again, min(reads, _MANY), writes, len(group), place].append(index)
    shape = np.zeros(count, dtype=np.int64)
    for number, row in enumerate(classes.values()):
        shape[row] = number
    first = np.cumsum([0, *map(len, classes.values())]).astype(np.int64)
    members = np.concatenate(list(classes.values())).astype(np.int64)
    return Alike(worth, shape, first, members)


@inlined
def change(tables: Tables, alike: Alike, state: JointState, work: Scratch) -> bool:
    """Make a random change of a state; return whether there was one to make.

    The scratch must be that of the evaluation of some state before.
    """
    draw = np.random.random()
    if draw < _KEEP:
        return _flip_kept(tables, state)
    draw -= _KEEP
    if draw < _STAY:
        if tables.settings[OFFLOAD]:
            return _flip_stays(state, work)
        return _flip_kept(tables, state)
    return _change_segments(tables, alike, state, draw - _STAY)


@inlined
def _change_segments(tables: Tables, alike: Alike, state: JointState, draw: float) -> bool:
    if draw < _SHIFT:
        return shift_boundary(tables, state)
    draw -= _SHIFT
    if draw < _ADD:
        return add_segment(tables, state)
    draw -= _ADD
    if draw < _ADD_LIKE:
        return _segment_like(tables, alike, state)
    draw -= _ADD_LIKE
    if draw < _REBUILD:
        return rebuild(tables, state)
    draw -= _REBUILD
    if draw < _REMOVE:
        return remove_segment(state)
    draw -= _REMOVE
    if draw < _SPLIT:
        return split_segment(tables, state)
    return join_segments(tables, state)


@inlined
def _segment_like(tables: Tables, alike: Alike, state: JointState) -> bool:
    """Do with something what is done with something of the same shape elsewhere."""
    if state.number[0] == 0:
        return False
    segment = np.random.randint(state.number[0])
    kind = alike.shape[state.first[segment]]
    begin, end = alike.first[kind], alike.first[kind + 1]
    other = alike.members[np.random.randint(begin, end)]
    return copy_stretch(tables, alike.shape, state, segment, other)


@inlined
def _set_kept(tables: Tables, state: JointState, computation: int, kept: int) -> None:
    """Keep a computation's results or not, with all that run again with it."""
    for place in range(tables.group_first[computation], tables.group_first[computation + 1]):
        state.kept[tables.group[place]] = kept


@inlined
def _flip_kept(tables: Tables, state: JointState) -> bool:
    """Keep a computation of a random segment, or run a kept one again; at times two at once."""
    if state.number[0] == 0:
        return False
    flipped = False
    for _ in range(1 if np.random.random() < 0.6 else 2):
        segment = np.random.randint(state.number[0])
        first, last = state.first[segment], state.last[segment]
        computation = np.random.randint(first, last + 1)
        if not tables.frozen[computation]:
            _set_kept(tables, state, computation, 1 - state.kept[computation])
            flipped = True
    return flipped


@inlined
def _flip_stays(state: JointState, work: Scratch) -> bool:
    """Let something leave that had to stay, or the other way round, or exchange two."""
    gaps = work.facts[GAPS]
    exchange = np.random.random() < 0.4
    flipped = False
    if exchange or np.random.random() < 0.5:
        for _ in range(_TRIES):
            if gaps == 0:
                break
            gap = np.random.randint(gaps)
            if work.chosen[gap]:
                state.stays[work.gap_value[gap]] = 1
                flipped = True
                break
        if not exchange:
            return flipped
    for _ in range(_TRIES):
        value = np.random.randint(state.stays.size)
        if state.stays[value]:
            state.stays[value] = 0
            return True
    return flipped


# How often a change is done in other copies of what repeats, and the parts of `spread`. By
# definition.
Spreading = tuple[float, int]
ALONE: Spreading = (0.0, 0)


class JointAnnealer:
    """Improves a program in batches, so that the caller can look at the clock in between.

    A byte that does not fit costs `weight` ticks. The attribute `best` is the best state so far
    that fits, or the start; `makespan` its estimated ticks, infinite if it does not fit; `fits`
    says whether the present one does.
    """

    def __init__(self, tables: Tables, start: JointState, seed: int, weight: float) -> None:
        self._tables = tables
        self._random = np.random.default_rng(seed)
        self._alike = alike(tables)
        self._repeats = repeats_of(tables)
        self._work = new_work(tables)
        self._state, self._new = start.copy(), start.copy()
        self.best = start.copy()
        self.weight = weight
        self.makespan = np.inf
        self.restart(start)

    def restart(self, state: JointState) -> None:
        """Continue from a state."""
        _copy(self._state, state)
        self._value = float(evaluate(self._tables, self._state, self._work, self.weight))
        self.fits = not self._work.facts[UNCOVERED]
        if self.fits and self._value < self.makespan:
            self.makespan = self._value
            _copy(self.best, state)

    def penalise(self, weight: float) -> None:
        """Change the ticks a byte that does not fit."""
        self.weight = weight
        self._value = float(evaluate(self._tables, self._state, self._work, weight))

    def run(self, steps: int, hot: float, cold: float, spreading: Spreading = ALONE) -> bool:
        """Make `steps` steps, cooling from `hot` to `cold` ticks; return whether that helped."""
        before = self.makespan
        self._value, self.makespan, self.fits = _anneal(
            self._tables,
            self._alike,
            self._repeats,
            self._state,
            self._new,
            self.best,
            self._work,
            self._value,
            self.makespan,
            self.weight,
            steps,
            hot,
            cold,
            spreading,
            int(self._random.integers(2**31)),
        )
        return bool(self.makespan < before)

    @property
    def current(self) -> JointState:
        """A copy of the present state."""
        return self._state.copy()


def weight_of(tables: Tables, peak: int) -> float:
    """Return ticks a byte that does not fit, for the first round: a step for the peak."""
    return 4.0 * float(tables.settings[COMPUTE]) / max(1, peak)


def _copy(to: JointState, of: JointState) -> None:
    for target, source in zip(to, of, strict=True):
        target[:] = source


@compiled
def _anneal(
    tables: Tables,
    alike: Alike,
    repeats: Repeats,
    state: JointState,
    new: JointState,
    best: JointState,
    work: Scratch,
    value: float,
    best_value: float,
    weight: float,
    steps: int,
    hot: float,
    cold: float,
    spreading: tuple[float, int],
    seed: int,
) -> tuple[float, float, bool]:
    """Anneal in place; return the present value, the best that fits, and whether this one fits."""
    np.random.seed(seed)
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    fits = evaluate(tables, state, work, weight) == value and work.facts[UNCOVERED] == 0
    for _ in range(steps):
        temperature *= cooling
        assign(new, state)
        if not change(tables, alike, new, work):
            continue
        if np.random.random() < spreading[0]:
            spread(tables, repeats, state, new, spreading[1])
        found = evaluate(tables, new, work, weight)
        if found > value and np.random.random() >= np.exp((value - found) / temperature):
            continue
        assign(state, new)
        value = found
        fits = work.facts[UNCOVERED] == 0
        if fits and value < best_value:
            best_value = value
            assign(best, state)
    return value, best_value, fits
