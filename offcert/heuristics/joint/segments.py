"""Changes of the segments of a state, one at a time or a whole stretch at once, compiled.

Ranges that may be segments are drawn at random.
"""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import IntArray, inlined
from offcert.heuristics.joint.state import JointState, allowed
from offcert.heuristics.joint.tables import Tables

# Draws in search of a range that may be a segment, or of a place at which to cut one. Arbitrary.
_TRIES = 6
# Computations by which an end of a segment moves, at most. Arbitrary.
_FAR = 24


@inlined
def step(longest: int) -> int:
    """Return a random number from 1 to `longest`, small ones more often."""
    return int(np.exp(np.random.random() * np.log(longest + 0.999)))


@inlined
def random_range(tables: Tables) -> tuple[int, int]:
    """Draw computations that may be a segment; last is less than first if none were found."""
    if tables.range_first.size:
        place = np.random.randint(tables.range_first.size)
        first, last = tables.range_first[place], tables.range_last[place]
        return (first, last) if allowed(tables, first, last) else (0, -1)
    for _ in range(_TRIES):
        first = np.random.randint(tables.duration.size)
        last = first + step(tables.duration.size) - 1
        while first > 0 and not tables.cut[first]:
            first -= 1
        while last + 1 < tables.duration.size and not tables.cut[last + 1]:
            last += 1
        if allowed(tables, first, last):
            return first, last
    return 0, -1


@inlined
def random_last(tables: Tables, first: int, most: int) -> int:
    """Draw where a segment ends that begins somewhere, at most at `most`; -1 if nowhere."""
    if tables.range_first.size:
        begin = int(np.searchsorted(tables.range_first, first))
        end = begin
        while (
            end < tables.range_first.size
            and tables.range_first[end] == first
            and tables.range_last[end] <= most
        ):
            end += 1
        return int(tables.range_last[np.random.randint(begin, end)]) if end > begin else -1
    for _ in range(_TRIES):
        last = first + step(most - first + 1) - 1
        if allowed(tables, first, last):
            return last
    return -1


@inlined
def other_last(tables: Tables, first: int, last: int) -> int:
    """Draw another end of a segment, mostly near the one that it has; -1 if there is none."""
    if tables.range_first.size == 0:
        end = _elsewhere(tables, last + 1) - 1
        return end if allowed(tables, first, end) else -1
    begin = int(np.searchsorted(tables.range_first, first))
    here = end = begin
    while end < tables.range_first.size and tables.range_first[end] == first:
        if tables.range_last[end] < last:
            here = end + 1
        end += 1
    place = _other_place(begin, here, end)
    return int(tables.range_last[place]) if place >= 0 else -1


@inlined
def other_first(tables: Tables, first: int, last: int) -> int:
    """Draw another begin of a segment, mostly near the one that it has; -1 if there is none."""
    if tables.range_first.size == 0:
        begin = _elsewhere(tables, first)
        return begin if allowed(tables, begin, last) else -1
    low = int(np.searchsorted(tables.end_last, last))
    here = end = low
    while end < tables.end_last.size and tables.end_last[end] == last:
        if tables.end_first[end] < first:
            here = end + 1
        end += 1
    place = _other_place(low, here, end)
    return int(tables.end_first[place]) if place >= 0 else -1


@inlined
def _other_place(begin: int, here: int, end: int) -> int:
    """Draw a place from `begin` to `end` other than one, mostly near it; -1 if there is none."""
    if end - begin < 2:
        return -1
    place = here + (step(_FAR) if np.random.random() < 0.5 else -step(_FAR))
    return int(place) if begin <= place < end else -1


@inlined
def _elsewhere(tables: Tables, boundary: int) -> int:
    """Draw a boundary near another one, between computations that run again together or not."""
    change = step(_FAR)
    if np.random.random() < 0.5:
        change = -change
    boundary += change
    direction = 1 if change > 0 else -1
    while 0 < boundary < tables.duration.size and not tables.cut[boundary]:
        boundary += direction
    return boundary


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
    tables: Tables, shape: IntArray, state: JointState, segment: int, begin: int
) -> bool:
    """Do at another place what is done in a segment, if everything there has the same shape."""
    first, last = state.first[segment], state.last[segment]
    shift = begin - first
    if abs(shift) <= last - first or not allowed(tables, begin, last + shift):
        return False
    for computation in range(first, last + 1):
        if shape[computation] != shape[computation + shift]:
            return False
    if not put_segment(tables, state, begin, last + shift, True):
        return False
    copy_inside(tables, state, first, last, shift)
    return True


@inlined
def copy_inside(tables: Tables, state: JointState, low: int, high: int, shift: int) -> None:
    """Do so many computations further on what is done from `low` to `high`, with all segments."""
    index = 0
    while index < state.number[0]:
        first, last = state.first[index], state.last[index]
        inside = low <= first and last <= high
        if inside and allowed(tables, first + shift, last + shift):
            # A segment that is inserted before this one moves it on by a place.
            index += insert(tables, state, first + shift, last + shift) and shift < 0
        index += 1
    for computation in range(low, high + 1):
        if not tables.frozen[computation + shift]:
            state.kept[computation + shift] = state.kept[computation]


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
