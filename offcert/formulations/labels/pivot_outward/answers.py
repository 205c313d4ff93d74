"""The other side of the cut, asked outward about one set after the other.

The sets are those that are out when the searched side reaches the cut, with when it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, plain
from offcert.formulations.labels.common import NONE
from offcert.formulations.labels.outward import kernel
from offcert.formulations.labels.outward import outlook as question
from offcert.formulations.labels.outward.evaluation import CAPACITY, Evaluator, new_question
from offcert.formulations.labels.outward.labels import STORED, Labels, forget, new_labels
from offcert.formulations.labels.outward.model import CutProblem, OutwardSide
from offcert.formulations.labels.outward.outlook import Outlook, SideQuestion, new_outlook
from offcert.formulations.labels.outward.rebuild import Half, half_of
from offcert.formulations.labels.outward.split import one_set
from offcert.formulations.labels.outward.sums import FRONT, Straddle, whole
from offcert.formulations.labels.pivot import arrays as store
from offcert.formulations.labels.pivot.arrays import WORD, LabelPool, SideArrays


class Arrivals(NamedTuple):
    """The labels of a side that may make a schedule, by the set of tensors that is out at the cut.

    ``counts`` (S, C) are the sets, by class of the pivot program. A ``label`` (N) has its set
    (``which``), the ``end`` of the side, when its link is ``free`` and its ``idle`` time. A return
    across the cut has its ``row`` in the pool (M), the set that is out after it (``after``), its
    class (``returning``), the end of the side (``cut``) and how long it still takes then
    (``rest``).
    """

    counts: IntArray
    label: IntArray
    which: IntArray
    end: IntArray
    free: IntArray
    idle: IntArray
    row: IntArray
    after: IntArray
    returning: IntArray
    cut: IntArray
    rest: IntArray


def arrivals_of(side: SideArrays, pool: LabelPool, latest: int) -> Arrivals:
    """Return the arrivals of a searched side at the cut by a certain time.

    Parameters
    ----------
    side : SideArrays
        The side.
    pool : LabelPool
        Its labels.
    latest : int
        Ticks; up to there it has been searched.
    """
    last = side.prefix[-1]
    whole = pool.final[: pool.counters[store.FINALS]]
    whole = whole[pool.alive[whole] == 1]
    whole = whole[np.maximum(pool.s[whole] + last, pool.t[whole]) <= latest]
    label, returning, begin = pool.straddle[: pool.counters[store.STRADDLES]].T
    cut = np.maximum(begin, pool.s[label] + last)
    row = np.flatnonzero((pool.alive[label] == 1) & (cut <= latest))
    label, returning, begin, cut = label[row], returning[row], begin[row], cut[row]
    keys = pool.key[label]
    keys[np.arange(len(keys)), side.word[returning]] -= np.int64(1) << side.shift[returning]
    sets, which = _told_apart(np.concatenate((pool.key[whole], keys)))
    return Arrivals(
        counts=_decoded(side, sets),
        label=whole,
        which=which[: len(whole)],
        end=np.maximum(pool.s[whole] + last, pool.t[whole]),
        free=pool.t[whole],
        idle=pool.s[whole],
        row=row,
        after=which[len(whole) :],
        returning=returning,
        cut=cut,
        rest=np.maximum(0, side.time_back[returning] - (cut - begin)),
    )


def _told_apart(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the different rows, and of each row which of these it is."""
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return different, which.reshape(-1)


def _decoded(side: SideArrays, keys: IntArray) -> IntArray:
    """Return the counts that keys stand for, one row a key."""
    classes = side.size.size
    counts = np.zeros((len(keys), classes), np.int64)
    for c in range(classes):
        same_word = side.word[c + 1] == side.word[c]
        after = side.shift[c + 1] if same_word else WORD
        mask = (np.int64(1) << (after - side.shift[c])) - 1
        counts[:, c] = (keys[:, side.word[c]] >> side.shift[c]) & mask
    return counts


class Demands(NamedTuple):
    """Questions to the other side: whether it can end in the time that is left.

    ``sets`` (S, C) are the tensors out at the cut, by class of the outward search. A demand (N) has
    one of these sets (``which``); the class of a tensor that is on its way to be out on the other
    side (``leaving``, or `NONE`); the ``end`` of the searched side; and how long after that the
    link is busy (``begin``). It comes from a label or, if it is ``crossing``, from a return across
    the cut; ``arrival`` is the place of that among labels or returns. ``origin`` tells for each set
    of the arrivals which of ``sets`` it is.
    """

    sets: IntArray
    which: IntArray
    leaving: IntArray
    end: IntArray
    begin: IntArray
    crossing: IntArray
    arrival: IntArray
    origin: IntArray


def demands_of(
    side: SideArrays, arrivals: Arrivals, place: IntArray, classes: int, only: NDArray[np.bool_]
) -> Demands:
    """Return the demands of arrivals on the other side, without those that follow from another.

    A tensor that the other side returns across the cut leaves the searched side as its next
    transfer out, once it is there and the link is free.

    Parameters
    ----------
    side : SideArrays
        The side that has been searched.
    arrivals : Arrivals
        How it can reach the cut.
    place : int64 array, by class of the pivot program
        The class of the outward search, or `NONE`: its tensors are free.
    classes : int
        Of the outward search.
    only : bool array, by set of the arrivals
        Of which sets.
    """
    counts = np.zeros((len(arrivals.counts), classes), np.int64)
    for c in range(place.size):
        if place[c] >= 0:
            counts[:, place[c]] += arrivals.counts[:, c]
    sets, origin = _told_apart(counts)
    rows = [_of_labels(side, arrivals, origin, np.flatnonzero(only[arrivals.which]), NONE, NONE)]
    for c in np.flatnonzero(place >= 0).tolist():
        can = arrivals.counts[arrivals.which, c] < side.here[c]
        chosen = np.flatnonzero(can & only[arrivals.which])
        rows.append(_of_labels(side, arrivals, origin, chosen, c, int(place[c])))
    crossing = np.flatnonzero(only[arrivals.after])
    rows.append(
        np.stack(
            (
                origin[arrivals.after[crossing]],
                np.full(len(crossing), NONE),
                arrivals.cut[crossing],
                arrivals.rest[crossing],
                np.ones(len(crossing), np.int64),
                crossing,
            )
        )
    )
    columns = np.concatenate(rows, axis=1)
    which, leaving, end, begin, _, _ = columns
    kept = _least(which * (classes + 1) + leaving + 1, end, begin)
    # In one layout always: for another the kernels that read it would be compiled again.
    which, leaving, end, begin, crosses, arrival = np.ascontiguousarray(columns[:, kept])
    return Demands(sets, which, leaving, end, begin, crosses, arrival, origin)


def _of_labels(
    side: SideArrays, arrivals: Arrivals, origin: IntArray, chosen: IntArray, c: int, leaving: int
) -> IntArray:
    """Return the demands of labels after which a tensor of class `c` leaves, or none (`NONE`)."""
    which, end = arrivals.which[chosen], arrivals.end[chosen]
    begin = np.zeros(len(chosen), np.int64)
    if c != NONE:
        ready = side.prefix[side.available[c, arrivals.counts[which, c]] + 1]
        begins = np.maximum(arrivals.free[chosen], arrivals.idle[chosen] + ready)
        begin = np.maximum(begin, side.time_out[c] - (end - begins))
    same, zero = np.full(len(chosen), leaving), np.zeros(len(chosen), np.int64)
    return np.stack((origin[which], same, end, begin, zero, chosen))


def _least(group: IntArray, end: IntArray, begin: IntArray) -> IntArray:
    """Return the rows for which no other of the group is as early in both end and begin."""
    order = np.lexsort((begin, end, group))
    kept = np.zeros(len(order), np.bool_)
    _mark_least(group[order], begin[order], kept)
    return order[kept]


@plain
def _mark_least(group: IntArray, begin: IntArray, kept: NDArray[np.bool_]) -> None:
    """Mark the rows that begin before all of their group that stand before them."""
    least = 0
    for row in range(group.size):
        if row == 0 or group[row] != group[row - 1] or begin[row] < least:
            kept[row], least = True, begin[row]


# Labels that are stored between two looks at the clock. Arbitrary.
_STRIDE = 50_000

# Why `_next_open` stops at a demand: it can be met; there was no room to tell; or it is time to
# look at the clock, before the demand is asked about.
_MET, _NOT_TOLD, _PAUSED = range(3)


@plain
def _next_open(
    side: OutwardSide,
    asked: SideQuestion,
    outlook: Outlook,
    labels: Labels,
    demands: Demands,
    first: int,
    target: int,
    stride: int,
    answer: IntArray,
) -> int:
    """Return the next demand from `first` on that is not refuted, or how many demands there are.

    ``answer`` then holds why it stops there, what the other side takes at least, and the labels
    stored meanwhile.
    """
    answer[2] = 0
    for row in range(first, demands.which.size):
        if answer[2] >= stride:
            answer[0] = _PAUSED
            return row
        counts = demands.sets[demands.which[row]]
        moved, ticks = 0, 0
        for c in range(counts.size):
            asked.low[c] = asked.high[c] = counts[c]
            moved += counts[c] * side.size[c]
            ticks += counts[c] * side.back[c]
        asked.asked[question.LEAST] = asked.asked[question.MOST] = moved
        asked.asked[question.WINDOW] = moved
        asked.asked[question.TICKS] = ticks
        asked.asked[question.BEGIN] = demands.begin[row]
        asked.asked[question.LEAVING] = demands.leaving[row]
        asked.asked[question.LIMIT] = target - demands.end[row]
        status, label = kernel.search(side, asked, outlook, labels)
        answer[2] += labels.counters[STORED]
        if status != kernel.REFUTED:
            answer[0] = _MET if status == kernel.FOUND else _NOT_TOLD
            answer[1] = labels.length[label]
            forget(labels)
            return row
        forget(labels)
    return demands.which.size


class Other:
    """The side of a cut that is asked.

    Parameters
    ----------
    pivot : CutProblem
        The cut, with all tensors counted that demands tell apart.
    index : int
        Number of the side.

    Attributes
    ----------
    labels : int
        Stored so far.
    """

    def __init__(self, pivot: CutProblem, index: int) -> None:
        self.pivot = pivot
        self.index = index
        self.labels = 0
        self._side = pivot.sides[index]
        self._store = new_labels(len(pivot.sizes), CAPACITY)
        self._outlook = new_outlook(self._side)
        self._question = new_question(self._side)
        twice = (self._side.back + self._side.away)[self._side.here > 0]
        self._question.asked[question.TWICE] = twice.min(initial=2**62)
        self._question.asked[question.ROOM] = CAPACITY
        self._question.asked[question.TO_END] = 1

    def refute(
        self, demands: Demands, target: int, most: int, pause: Callable[[], None]
    ) -> list[tuple[int, int]]:
        """Return demands that schedules of `target` ticks may meet, with the least they may take.

        From the `most`-th on, only demands that may take less than all before them are listed: then
        the last one is the least of all.

        Parameters
        ----------
        demands : Demands
            The demands on the side.
        target : int
            Longer schedules are of no interest.
        most : int
            How many are listed without that.
        pause : callable
            Called from time to time; may raise.
        """
        found: list[tuple[int, int]] = []
        answer = np.zeros(3, np.int64)
        row, count = 0, len(demands.which)
        while row < count:
            pause()
            asked = self._side, self._question, self._outlook, self._store
            row = int(_next_open(*asked, demands, row, target, _STRIDE, answer))
            self.labels += int(answer[2])
            if row < count and answer[0] != _PAUSED:
                found.append((int(answer[1] + demands.end[row]), row))
                row += 1
                if len(found) >= most:
                    target = min(found)[0] - 1
        return found

    def half(
        self, demands: Demands, row: int, limit: int, pause: Callable[[], None]
    ) -> Half | None:
        """Return half a schedule that meets a demand, small tensors apart; None if there is none.

        Parameters
        ----------
        demands, pause
            As for `refute`.
        row : int
            The demand.
        limit : int
            On the schedule, in ticks.
        """
        counts = tuple(demands.sets[demands.which[row]].tolist())
        region, before = one_set(whole(self.pivot), counts, self.pivot.sizes), 0
        leaving, begin = int(demands.leaving[row]), int(demands.begin[row])
        if leaving != NONE:
            before = begin if self.index == FRONT else int(self._side.away[leaving]) - begin
            region = replace(region, straddle=Straddle(self.index, leaving, before, before))
        left = limit - int(demands.end[row])
        # One is seldom needed, and each round has its own way to pause.
        evaluator = Evaluator(self.pivot, pause)
        way = evaluator.one_side(self.index, region, left, begin, CAPACITY)
        if way is None or not way.complete:
            return None
        return half_of(self.pivot, region, self.index, way, before)
