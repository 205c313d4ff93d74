"""Programs to start from: segments, nested or equal, or what a linear relaxation suggests.

In segments what is worth most is kept. A relaxation says of every computation
what share of it runs again. Equal layers share equally, so the shares say only how many of the
layers do what. Here whole numbers near to these are tried, and the layers that do it: the last
ones, the first ones, or some all over the network.
"""

from __future__ import annotations

import math
import random
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest

import numpy as np

from offcert.core.compiled import IntArray
from offcert.heuristics.joint.annealing import Alike
from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.nested import nested
from offcert.heuristics.joint.parts import parts_of
from offcert.heuristics.joint.repeats import repeats_of
from offcert.heuristics.joint.state import JointState, Scratch, may_be, new_state, with_segments
from offcert.heuristics.joint.tables import Tables

# Programs that are tried, and layers by which a number may differ from the relaxation's.
# Arbitrary.
_TRIED, _FAR = 400, 3
# Shares of less are 0, and shares that differ by less are equal. Arbitrary.
_EQUAL = 1e-3
# Layers from one visited layer to the next, so that layers all over the network are: a number that
# divides few numbers of layers. Arbitrary.
_PACE = 7


def guided(
    tables: Tables,
    shares: Mapping[int, float],
    work: Scratch,
    weight: float,
    most: int,
    until: float = math.inf,
) -> list[JointState]:
    """Return the best programs near to what a relaxation says, the shortest first."""
    rounding = _Rounding(tables, shares)
    found: dict[float, JointState] = {}
    for _ in range(_TRIED):
        state = rounding.state()
        found.setdefault(float(evaluate(tables, state, work, weight)), state)
        if time.monotonic() > until:
            break
    return [found[value] for value in sorted(found)[:most]]


class _Rounding:
    """Draws programs: which computations run again, and in which segments."""

    def __init__(self, tables: Tables, shares: Mapping[int, float]) -> None:
        self.tables = tables
        self.random = random.Random(0)
        count = len(tables.duration)
        self.share = np.zeros(count)
        for computation, share in shares.items():
            self.share[computation] = share
        repeats = repeats_of(tables)
        rows = zip(*(row.tolist() for row in repeats[:3]), strict=True)
        self.stretches: list[tuple[int, int, int]] = list(rows)
        # The copy that each computation lies in: no segment of ours is in several.
        self.copy = np.full(count, -1, dtype=np.int64)
        copies = 0
        for first, period, repeated in self.stretches:
            for begin in range(first, first + period * repeated, period):
                self.copy[begin : begin + period] = copies
                copies += 1
        self.ranges = self._ranges()

    def _ranges(self) -> dict[int, list[tuple[int, int, list[int]]]]:
        """Return, for each computation, the ranges that hold it, the longest first.

        With each stand the values that it is given and that cannot leave: unless something runs
        again in it that reads such a value, it would stay for nothing.
        """
        tables, carrying = self.tables, self.tables.carrying
        found: dict[int, list[tuple[int, int, list[int]]]] = {}
        pairs = zip(tables.range_first.tolist(), tables.range_last.tolist(), strict=True)
        for number, (first, last) in enumerate(pairs):
            if last >= len(tables.duration) or np.ptp(self.copy[first : last + 1]):
                continue
            given: list[int] = []
            if carrying.known[0]:
                row = slice(carrying.input_first[number], carrying.input_first[number + 1])
                given = [v for v in carrying.input[row].tolist() if not tables.evictable[v]]
            for computation in range(first, last + 1):
                found.setdefault(computation, []).append((first, last, given))
        for ranges in found.values():
            ranges.sort(key=lambda each: each[0] - each[1])
        return found

    def state(self) -> JointState:
        """Draw a program."""
        again = self.share > self.random.uniform(0.1, 0.9)
        for stretch in self.stretches:
            self._round(again, *stretch)
        again &= (self.tables.frozen == 0) & (self.tables.repeatable == 1)
        state = new_state(self.tables)
        state.kept[:] = ~again
        self._together(state)
        self._cover(state)
        return state

    def _round(self, again: np.ndarray, first: int, period: int, copies: int) -> None:
        """Draw how many copies do what; equal numbers differ equally, in the same copies."""
        block = again[first : first + period * copies].reshape(copies, period)
        sums = self.share[first : first + period * copies].reshape(copies, period).sum(axis=0)
        order = list(range(copies))
        kind = self.random.choice(("late", "early", "spread"))
        if kind == "late":
            order.reverse()
        elif kind == "spread":
            order.sort(key=lambda copy: copy * _PACE % copies)
        change: dict[int, int] = {}
        block[:] = False
        for place, total in enumerate(sums.tolist()):
            whole = round(total)
            if _EQUAL < total < copies - _EQUAL:
                whole += change.setdefault(round(total / _EQUAL), self.random.randint(-_FAR, _FAR))
            block[order[: max(0, min(copies, whole))], place] = True

    def _together(self, state: JointState) -> None:
        """Keep all or none of the computations that run again together."""
        tables = self.tables
        for computation in np.flatnonzero(state.kept).tolist():
            row = slice(tables.group_first[computation], tables.group_first[computation + 1])
            state.kept[tables.group[row]] = 1

    def _cover(self, state: JointState) -> None:
        """Put the computations that run again into the longest segments without vain holds."""
        number, begin = 0, 0
        for computation in np.flatnonzero(state.kept == 0).tolist():
            if computation < begin:
                continue
            for first, last, given in self.ranges.get(computation, ()):
                if first >= begin and all(self._reads(state, first, last, v) for v in given):
                    state.first[number], state.last[number] = first, last
                    number, begin = number + 1, last + 1
                    break
        state.number[0] = number

    def _reads(self, state: JointState, first: int, last: int, value: int) -> bool:
        carrying = self.tables.carrying
        row = slice(carrying.reader_first[value], carrying.reader_first[value + 1])
        readers: Sequence[int] = carrying.reader[row].tolist()
        return any(first <= each <= last and not state.kept[each] for each in readers)


# Lengths of equal segments, and shares of kept computations, that are tried. Arbitrary.
_LENGTHS, _SHARES = 14, 10
# Copies from which on each copy of a repeated stretch is tried as a segment. Arbitrary.
_COPIES = 8


def starts(
    tables: Tables,
    alike: Alike,
    work: Scratch,
    weight: float,
    most: int,
    until: float = math.inf,
) -> list[JointState]:
    """Return the best programs of equal segments, or none, and of nested ones, in turn.

    The best of all comes first. A long search ends better if it does not begin with one kind alone:
    measured on ResNet-50 at a quarter of its peak, by up to 0.7 %; no record.
    """
    found: tuple[dict[float, JointState], ...] = ({}, {})
    for kind, state in _candidates(tables, alike, work):
        # Equal lengths are mostly equal programs.
        found[kind].setdefault(float(evaluate(tables, state, work, weight)), state)
        if time.monotonic() > until:
            break
    kinds = [[(value, each[value]) for value in sorted(each)] for each in found if each]
    kinds.sort(key=lambda each: each[0][0])
    turns = chain.from_iterable(zip_longest(*kinds))
    return [each[1] for each in turns if each is not None][:most]


def _candidates(tables: Tables, alike: Alike, work: Scratch) -> Iterator[tuple[int, JointState]]:
    """Yield a state without segments; for each program, it and what keeps a share in it.

    With each comes 1 if it is a program of the dynamic program, else 0.
    """
    yield 0, new_state(tables)
    worth = np.unique(alike.worth[(tables.repeatable == 1) & (tables.frozen == 0)])
    if not len(worth):
        return
    shares = np.quantile(worth, np.linspace(0, 1, _SHARES - 1)).tolist()
    spans = _Spans(tables)
    lengths = np.geomspace(max(1, spans.largest / 2), max(1, spans.total), _LENGTHS)
    equal = [_copies(tables), *(spans.of(float(length)) for length in lengths)]
    beside = ((0, with_segments(tables, segments)) for segments in equal if segments)
    inside = ((1, program) for program in nested(tables, parts_of(tables), work))
    for kind, program in chain(beside, inside):
        for least in (np.inf, *shares):
            state = program.copy()
            state.kept[alike.worth >= least] = 1
            _keep_together(tables, state.kept)
            yield kind, state


def _copies(tables: Tables) -> list[tuple[int, int]]:
    """Return a segment for each copy of what repeats, if all of that may be segments."""
    found = []
    repeats = repeats_of(tables)
    for first, period, copies in zip(*(row.tolist() for row in repeats[:3]), strict=True):
        if copies >= _COPIES:
            begins = range(first, first + period * copies, period)
            found += [(begin, begin + period - 1) for begin in begins]
    return sorted(found) if all(may_be(tables, *segment) for segment in found) else []


def _keep_together(tables: Tables, kept: IntArray) -> None:
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
