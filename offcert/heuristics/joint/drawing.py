"""Ranges that may be segments, drawn at random, compiled."""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import inlined
from offcert.heuristics.joint.tables import Tables

# Draws in search of a range that may be a segment. Arbitrary.
_TRIES = 6
# Computations by which an end of a segment moves, at most. Arbitrary.
_FAR = 24


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
