"""Changes of the segments of a state, one at a time or a whole stretch at once, compiled."""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import inlined
from offcert.heuristics.joint.drawing import (
    allowed,
    other_first,
    other_last,
    random_last,
    random_range,
)
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
        A number for each computation, the same for computations that are alike.
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
            # A segment that is inserted before this one moves it on by a place.
            index += insert(tables, state, low + shift, high + shift) and shift < 0
        index += 1
    for computation in range(first, last + 1):
        if not tables.frozen[computation + shift]:
            state.kept[computation + shift] = state.kept[computation]
    return True


# Draws in search of a place at which to cut a segment. Arbitrary.
_TRIES = 6


@inlined
def insert(tables: Tables, state: JointState, first: int, last: int) -> bool:
    """Add a segment; return whether it crosses no other and is not there.

    What the program changes in place after it cannot be kept in it.
    """
    count = state.number[0]
    place = 0
    for index in range(count):
        other_first, other_last = state.first[index], state.last[index]
        if other_first == first and other_last == last:
            return False
        if other_first < first <= other_last < last or first < other_first <= last < other_last:
            return False
        if other_first < first or (other_first == first and other_last > last):
            place = index + 1
    for index in range(count, place, -1):
        state.first[index] = state.first[index - 1]
        state.last[index] = state.last[index - 1]
    state.first[place], state.last[place] = first, last
    state.number[0] = count + 1
    if not tables.cut[last + 1]:
        _keep_nothing_beyond(tables, state, first, last)
    return True


@inlined
def _keep_nothing_beyond(tables: Tables, state: JointState, first: int, last: int) -> None:
    """Let run again what runs again together with something after a segment."""
    for computation in range(first, last + 1):
        end = tables.group_first[computation + 1]
        if tables.group[end - 1] > last and not tables.frozen[computation]:
            for place in range(tables.group_first[computation], end):
                state.kept[tables.group[place]] = 0


@inlined
def remove(state: JointState, place: int) -> None:
    """Take a segment away; what is inside of it stays."""
    count = state.number[0] - 1
    for index in range(place, count):
        state.first[index] = state.first[index + 1]
        state.last[index] = state.last[index + 1]
    state.number[0] = count


@inlined
def add_segment(tables: Tables, state: JointState) -> bool:
    """Add a random segment, in place of those that it crosses and at times of those inside."""
    first, last = random_range(tables)
    if last < first:
        return False
    return put_segment(tables, state, first, last, np.random.random() < 0.5)


@inlined
def put_segment(tables: Tables, state: JointState, first: int, last: int, alone: bool) -> bool:
    """Add a segment in place of those that it crosses, and, if `alone`, of those inside of it."""
    for index in range(state.number[0] - 1, -1, -1):
        other_first, other_last = state.first[index], state.last[index]
        inside = first <= other_first and other_last <= last
        crosses = other_first < first <= other_last < last
        crosses = crosses or first < other_first <= last < other_last
        if crosses or (inside and alone):
            remove(state, index)
    return insert(tables, state, first, last)


@inlined
def remove_segment(state: JointState) -> bool:
    """Take a random segment away."""
    if state.number[0] == 0:
        return False
    remove(state, np.random.randint(state.number[0]))
    return True


@inlined
def _neighbour(state: JointState, first: int, last: int) -> int:
    """Return the segment that lies exactly there, or -1."""
    for index in range(state.number[0]):
        if state.first[index] == first and (state.last[index] == last or last < 0):
            return index
    return -1


@inlined
def shift_boundary(tables: Tables, state: JointState) -> bool:
    """Move the begin or the end of a segment, at times with the one that begins where it ends."""
    count = state.number[0]
    if count == 0:
        return False
    index = np.random.randint(count)
    first, last = state.first[index], state.last[index]
    if np.random.random() < 0.5:
        first = other_first(tables, first, last)
    else:
        end = other_last(tables, first, last)
        follower = _neighbour(state, last + 1, -1)
        if end >= 0 and follower >= 0 and np.random.random() < 0.7:
            # The outermost of those that begin there is its neighbour.
            return _move_common(tables, state, index, follower, end + 1)
        last = end
    if first < 0 or last < 0:
        return False
    remove(state, index)
    return put_segment(tables, state, first, last, False)


@inlined
def _move_common(tables: Tables, state: JointState, index: int, follower: int, end: int) -> bool:
    first, last = state.first[index], state.last[follower]
    if not (allowed(tables, first, end - 1) and allowed(tables, end, last)):
        return False
    remove(state, max(index, follower))
    remove(state, min(index, follower))
    return insert(tables, state, first, end - 1) and insert(tables, state, end, last)


@inlined
def split_segment(tables: Tables, state: JointState) -> bool:
    """Cut a random segment in two, or put the parts into it."""
    if state.number[0] == 0:
        return False
    index = np.random.randint(state.number[0])
    first, last = state.first[index], state.last[index]
    for _ in range(_TRIES):
        if last == first:
            return False
        cut = np.random.randint(first + 1, last + 1)
        if allowed(tables, first, cut - 1) and allowed(tables, cut, last):
            if np.random.random() < 0.7:
                remove(state, index)
                return insert(tables, state, first, cut - 1) and insert(tables, state, cut, last)
            return insert(tables, state, first, cut - 1)
    return False


@inlined
def join_segments(tables: Tables, state: JointState) -> bool:
    """Make one of a segment and the one that follows it, or put both into one."""
    if state.number[0] < 2:
        return False
    index = np.random.randint(state.number[0])
    first, last = state.first[index], state.last[index]
    nest = np.random.random() < 0.3
    for _ in range(np.random.randint(1, 5) if nest else 1):
        follower = _neighbour(state, last + 1, -1)
        if follower < 0:
            break
        last = state.last[follower]
        if not nest:
            remove(state, follower)
    if last == state.last[index] or not allowed(tables, first, last):
        return False
    if not nest:
        remove(state, index)
    return insert(tables, state, first, last)
