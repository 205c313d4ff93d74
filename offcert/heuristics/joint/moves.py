"""Random changes of a program and of what may leave, compiled."""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import inlined
from offcert.heuristics.joint.segments import (
    add_segment,
    join_segments,
    remove_segment,
    shift_boundary,
    split_segment,
)
from offcert.heuristics.joint.state import GAPS, State, Work
from offcert.heuristics.joint.tables import OFFLOAD, Integers, Tables

# Shares of the changes: of what is kept, of what may leave, and of segments.
_KEEP, _KEEP_CLASS, _STAY = 0.4, 0.06, 0.18
_SHIFT, _ADD, _REMOVE, _SPLIT = 0.14, 0.06, 0.05, 0.06
_TRIES = 8


@inlined
def change(
    tables: Tables, classes: Integers, members: Integers, state: State, work: Work
) -> bool:
    """Make a random change of a state; return whether there was one to make.

    ``members[classes[c]:classes[c + 1]]`` are the computations of class `c`, which are alike. The
    scratch must be that of the evaluation of some state before.
    """
    draw = np.random.random()
    if draw < _KEEP:
        return _flip_kept(tables, state, work)
    draw -= _KEEP
    if draw < _KEEP_CLASS:
        return _flip_class(tables, classes, members, state)
    draw -= _KEEP_CLASS
    if draw < _STAY:
        if tables.settings[OFFLOAD]:
            return _flip_stays(state, work)
        return _flip_kept(tables, state, work)
    draw -= _STAY
    if draw < _SHIFT:
        return shift_boundary(tables, state)
    draw -= _SHIFT
    if draw < _ADD:
        return add_segment(tables, state)
    draw -= _ADD
    if draw < _REMOVE:
        return remove_segment(state)
    draw -= _REMOVE
    if draw < _SPLIT:
        return split_segment(tables, state)
    return join_segments(tables, state)


@inlined
def _set_kept(tables: Tables, state: State, computation: int, kept: int) -> None:
    """Keep a computation's results or not, with all that run again with it."""
    for place in range(tables.group_first[computation], tables.group_first[computation + 1]):
        state.kept[tables.group[place]] = kept


@inlined
def _flip_kept(tables: Tables, state: State, work: Work) -> bool:
    """Keep what ran again in a random segment, or the other way round; at times two at once."""
    if state.count[0] == 0:
        return False
    flipped = False
    for _ in range(1 if np.random.random() < 0.6 else 2):
        segment = np.random.randint(state.count[0])
        first, last = state.first[segment], state.last[segment]
        computation = np.random.randint(first, last + 1)
        if not tables.frozen[computation]:
            _set_kept(tables, state, computation, 1 - state.kept[computation])
            flipped = True
    return flipped


@inlined
def _flip_class(tables: Tables, classes: Integers, members: Integers, state: State) -> bool:
    """Keep all computations that are like a random one, or a few neighbours of these, or none."""
    if state.count[0] == 0:
        return False
    chosen = np.random.randint(classes.size - 1)
    begin, end = classes[chosen], classes[chosen + 1]
    if np.random.random() < 0.5:
        begin += np.random.randint(end - begin)
        end = min(end, begin + 1 + np.random.randint(4))
    kept = 1 - state.kept[members[begin]]
    if tables.frozen[members[begin]]:
        return False
    for place in range(begin, end):
        if not tables.frozen[members[place]]:
            _set_kept(tables, state, members[place], kept)
    return True


@inlined
def _flip_stays(state: State, work: Work) -> bool:
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
