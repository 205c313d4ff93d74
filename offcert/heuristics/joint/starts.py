"""Programs to start from: segments of about equal memory, in which what is worth most is kept."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from offcert.heuristics.joint.changes import Alike
from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.repeats import repeats_of
from offcert.heuristics.joint.state import JointState, Work, new_state
from offcert.heuristics.joint.tables import Integers, Tables

# Lengths of segments, and shares of kept computations, that are tried. Arbitrary.
_LENGTHS, _SHARES = 14, 10
# Copies from which on each copy of a repeated stretch is tried as a segment. Arbitrary.
_COPIES = 8


def starts(
    tables: Tables,
    alike: Alike,
    work: Work,
    weight: float,
    most: int,
    until: float = math.inf,
) -> list[JointState]:
    """Return the best programs of equal segments or layers, and that of none, shortest first.

    Parameters
    ----------
    tables, alike, work : Tables, Alike, Work
        The problem, its classes, and scratch.
    weight : float
        Ticks a byte that does not fit.
    most : int
        How many at most.
    until : float, optional
        When to try no more, by ``time.monotonic``; the first one is always tried.
    """
    found: list[tuple[float, int, JointState]] = []
    for number, state in enumerate(_candidates(tables, alike)):
        found.append((float(evaluate(tables, state, work, weight)), number, state))
        if time.monotonic() > until:
            break
    found.sort(key=lambda item: item[:2])
    chosen: list[tuple[float, int, JointState]] = []
    for item in found:
        # Equal lengths are mostly equal programs.
        if all(item[0] != other[0] for other in chosen):
            chosen.append(item)
    return [state for _, _, state in chosen[:most]]


def _candidates(tables: Tables, alike: Alike) -> Iterator[JointState]:
    """Yield a state without segments, and one for every length and share."""
    yield new_state(tables)
    spans = _Spans(tables)
    worth = np.unique(alike.worth[(tables.repeatable == 1) & (tables.frozen == 0)])
    if not len(worth) or not spans.total:
        return
    shares = np.quantile(worth, np.linspace(0, 1, _SHARES - 1)).tolist()
    lengths = np.geomspace(max(1, spans.largest / 2), spans.total, _LENGTHS)
    for segments in (_copies(tables, spans), *(spans.of(float(length)) for length in lengths)):
        if not segments:
            continue
        for least in (np.inf, *shares):
            state = new_state(tables)
            state.kept[alike.worth >= least] = 1
            for index, (first, last) in enumerate(segments):
                state.first[index], state.last[index] = first, last
            state.number[0] = len(segments)
            _keep_together(tables, state.kept)
            yield state


def _copies(tables: Tables, spans: _Spans) -> list[tuple[int, int]]:
    """Return a segment for each copy of what repeats, if all of that may be segments."""
    found = []
    repeats = repeats_of(tables)
    for first, period, copies in zip(*(row.tolist() for row in repeats[:3]), strict=True):
        if copies >= _COPIES:
            begins = range(first, first + period * copies, period)
            found += [(begin, begin + period - 1) for begin in begins]
    return sorted(found) if all(spans.may_be(*segment) for segment in found) else []


def _keep_together(tables: Tables, kept: Integers) -> None:
    """Keep all or none of what runs again together."""
    for computation in range(len(kept)):
        group = tables.group[tables.group_first[computation] : tables.group_first[computation + 1]]
        kept[group] = kept[group[0]] if not tables.frozen[group[0]] else 1


class _Spans:
    """Segments one after the other, none of which saves more than some bytes."""

    def __init__(self, tables: Tables) -> None:
        saved = np.zeros(len(tables.duration) + 1, dtype=np.int64)
        needed = np.zeros(len(tables.size), dtype=bool)
        for computation in np.flatnonzero(tables.repeatable == 0):
            row = slice(tables.read_first[computation], tables.read_first[computation + 1])
            needed[tables.read[row]] = True
        for computation in np.flatnonzero(tables.repeatable == 1):
            row = slice(tables.write_first[computation], tables.write_first[computation + 1])
            values = tables.write[row]
            saved[computation + 1] = int(tables.size[values[needed[values]]].sum())
        self.largest = int(saved.max())
        self._before = np.cumsum(saved)
        self.total = int(self._before[-1])
        self._ends = _ends(tables)

    def may_be(self, first: int, last: int) -> bool:
        """Return whether a range may be a segment."""
        return last in self._ends.get(first, ())

    def of(self, length: float) -> list[tuple[int, int]]:
        """Return the segments for a number of bytes."""
        found = []
        first = 0
        count = len(self._before) - 1
        while first < count:
            ends = self._ends.get(first, ())
            saved = [int(self._before[last + 1] - self._before[first]) for last in ends]
            place = bisect_right(saved, length)
            if place:
                found.append((first, ends[place - 1]))
                first = ends[place - 1] + 1
            else:
                first += 1
        return found


def _ends(tables: Tables) -> dict[int, list[int]]:
    """Return for each computation where segments that begin with it may end, increasing."""
    ends: dict[int, list[int]] = defaultdict(list)
    if len(tables.range_first):
        pairs = zip(tables.range_first.tolist(), tables.range_last.tolist(), strict=True)
        for first, last in pairs:
            if last < len(tables.duration):
                ends[first].append(last)
        return ends
    cuts = np.flatnonzero(tables.cut)
    for place, first in enumerate(cuts.tolist()):
        for end in cuts[place + 1 :].tolist():
            if tables.blocked[first] != tables.blocked[end]:
                break
            ends[first].append(end - 1)
    return ends
