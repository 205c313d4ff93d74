"""Changes of the segments of a state, compiled."""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import inlined
from offcert.heuristics.joint.state import State
from offcert.heuristics.joint.tables import Tables

_TRIES = 6


@inlined
def allowed(tables: Tables, first: int, last: int) -> bool:
    """Return whether a range may be a segment."""
    if not 0 <= first <= last < tables.duration.size:
        return False
    if last >= tables.beyond[first]:
        return False
    if tables.blocked[first] != tables.blocked[last + 1]:
        return False
    if tables.range_first.size == 0:
        return True
    place = np.searchsorted(tables.range_first, first)
    while place < tables.range_first.size and tables.range_first[place] == first:
        if tables.range_last[place] == last:
            return True
        place += 1
    return False


@inlined
def insert(tables: Tables, state: State, first: int, last: int) -> bool:
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
def _keep_nothing_beyond(tables: Tables, state: State, first: int, last: int) -> None:
    """Let run again what runs again together with something after a segment."""
    for computation in range(first, last + 1):
        end = tables.group_first[computation + 1]
        if tables.group[end - 1] > last and not tables.frozen[computation]:
            for place in range(tables.group_first[computation], end):
                state.kept[tables.group[place]] = 0


@inlined
def remove(state: State, place: int) -> None:
    """Take a segment away; what is inside of it stays."""
    count = state.number[0] - 1
    for index in range(place, count):
        state.first[index] = state.first[index + 1]
        state.last[index] = state.last[index + 1]
    state.number[0] = count


@inlined
def _step(longest: int) -> int:
    """Return a random number from 1 to `longest`, small ones more often."""
    return int(np.exp(np.random.random() * np.log(longest + 0.999)))


@inlined
def _random_range(tables: Tables) -> tuple[int, int]:
    """Draw what may be a segment; the last is less than the first if none was found."""
    if tables.range_first.size:
        place = np.random.randint(tables.range_first.size)
        first, last = tables.range_first[place], tables.range_last[place]
        return (first, last) if allowed(tables, first, last) else (0, -1)
    for _ in range(_TRIES):
        first = np.random.randint(tables.duration.size)
        last = first + _step(tables.duration.size) - 1
        while first > 0 and not tables.cut[first]:
            first -= 1
        while last + 1 < tables.duration.size and not tables.cut[last + 1]:
            last += 1
        if allowed(tables, first, last):
            return first, last
    return 0, -1


@inlined
def add_segment(tables: Tables, state: State) -> bool:
    """Add a random segment, in place of those that it crosses and at times of those inside."""
    first, last = _random_range(tables)
    if last < first:
        return False
    return put_segment(tables, state, first, last, np.random.random() < 0.5)


@inlined
def put_segment(tables: Tables, state: State, first: int, last: int, alone: bool) -> bool:
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
def remove_segment(state: State) -> bool:
    """Take a random segment away."""
    if state.number[0] == 0:
        return False
    remove(state, np.random.randint(state.number[0]))
    return True


@inlined
def _neighbour(state: State, first: int, last: int) -> int:
    """Return the segment that lies exactly there, or -1."""
    for index in range(state.number[0]):
        if state.first[index] == first and (state.last[index] == last or last < 0):
            return index
    return -1


@inlined
def shift_boundary(tables: Tables, state: State) -> bool:
    """Move the end of a segment, at times together with the one that begins there."""
    count = state.number[0]
    if count == 0:
        return False
    index = np.random.randint(count)
    first, last = state.first[index], state.last[index]
    change = _step(24)
    if np.random.random() < 0.5:
        change = -change
    if np.random.random() < 0.5:
        return _begin_elsewhere(tables, state, index, first + change)
    end = last + 1 + change
    direction = 1 if change > 0 else -1
    while 0 < end < tables.duration.size and not tables.cut[end]:
        end += direction
    follower = _neighbour(state, last + 1, -1)
    if follower >= 0 and np.random.random() < 0.7:
        # The outermost of those that begin there is its neighbour.
        return _move_common(tables, state, index, follower, end)
    if not allowed(tables, first, end - 1):
        return False
    remove(state, index)
    return insert(tables, state, first, end - 1)


@inlined
def _begin_elsewhere(tables: Tables, state: State, index: int, first: int) -> bool:
    last = state.last[index]
    direction = 1 if first > state.first[index] else -1
    while 0 < first < tables.duration.size and not tables.cut[first]:
        first += direction
    if not allowed(tables, first, last):
        return False
    remove(state, index)
    return insert(tables, state, first, last)


@inlined
def _move_common(tables: Tables, state: State, index: int, follower: int, end: int) -> bool:
    first, last = state.first[index], state.last[follower]
    if not (allowed(tables, first, end - 1) and allowed(tables, end, last)):
        return False
    remove(state, max(index, follower))
    remove(state, min(index, follower))
    return insert(tables, state, first, end - 1) and insert(tables, state, end, last)


@inlined
def split_segment(tables: Tables, state: State) -> bool:
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
def join_segments(tables: Tables, state: State) -> bool:
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
