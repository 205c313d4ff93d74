"""Changes of all segments in a stretch at once, compiled."""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import inlined
from offcert.heuristics.joint.drawing import allowed, random_last
from offcert.heuristics.joint.segments import insert, put_segment, remove
from offcert.heuristics.joint.state import JointState
from offcert.heuristics.joint.tables import Integers, Tables

# The chance that a segment begins at a place where one may. Arbitrary.
_SOMETHING = 0.8


@inlined
def rebuild(tables: Tables, state: JointState) -> bool:
    """Put random segments in the place of a random one, or inside of it."""
    if state.number[0] == 0:
        return False
    segment = np.random.randint(state.number[0])
    first, last = state.first[segment], state.last[segment]
    inside = np.random.random() < 0.3
    for index in range(state.number[0] - 1, segment - (not inside), -1):
        if first <= state.first[index] and state.last[index] <= last:
            remove(state, index)
    begin = first
    while begin <= last:
        if np.random.random() < _SOMETHING:
            end = random_last(tables, begin, last)
            if end >= begin and insert(tables, state, begin, end):
                begin = end
        begin += 1
    return True


@inlined
def copy_stretch(
    tables: Tables, shape: Integers, state: JointState, segment: int, begin: int
) -> bool:
    """Do at another place what is done in a segment, if everything there has the same shape.

    Parameters
    ----------
    tables, state : Tables, JointState
        As in the evaluation.
    shape : int64 array, one entry a computation
        What computations are like.
    segment : int
        The segment.
    begin : int
        Where the other one begins.
    """
    first, last = state.first[segment], state.last[segment]
    shift = begin - first
    if abs(shift) <= last - first or not allowed(tables, begin, last + shift):
        return False
    for computation in range(first, last + 1):
        if shape[computation] != shape[computation + shift]:
            return False
    if not put_segment(tables, state, begin, last + shift, True):
        return False
    index = 0
    while index < state.number[0]:
        low, high = state.first[index], state.last[index]
        inner = first <= low and high <= last and high - low < last - first
        if inner and allowed(tables, low + shift, high + shift):
            # What is put before it moves it on.
            index += insert(tables, state, low + shift, high + shift) and shift < 0
        index += 1
    for computation in range(first, last + 1):
        if not tables.frozen[computation + shift]:
            state.kept[computation + shift] = state.kept[computation]
    return True
