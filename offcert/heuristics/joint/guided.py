"""Programs to start from that follow a linear relaxation: how often what runs again there.

A relaxation says of every computation what share of it runs again. Equal layers share equally, so
the shares say only how many of the layers do what. Here whole numbers near to these are tried, and
the layers that do it: the last ones, the first ones, or some all over the network.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence

import numpy as np

from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.repeats import repeats_of
from offcert.heuristics.joint.state import JointState, Work, new_state
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
    work: Work,
    weight: float,
    most: int,
    until: float = math.inf,
) -> list[JointState]:
    """Return the best programs near to what a relaxation says, the shortest first.

    Parameters
    ----------
    tables, work : Tables, Work
        The problem, with ranges that may be segments, and scratch.
    shares : mapping of int to float
        For computations, what share of them runs again; 0 for the others.
    weight : float
        Ticks a byte that does not fit.
    most : int
        How many at most.
    until : float, optional
        When to try no more, by ``time.monotonic``; one is always tried.
    """
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
