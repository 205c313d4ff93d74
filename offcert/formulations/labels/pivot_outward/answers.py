"""The other side of the cut, asked outward about one set after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from offcert.core.compiled import plain
from offcert.formulations.common.stores import NONE
from offcert.formulations.labels.outward import kernel
from offcert.formulations.labels.outward import outlook as question
from offcert.formulations.labels.outward.evaluation import CAPACITY, Evaluator, new_question
from offcert.formulations.labels.outward.labels import STORED, Labels, forget, new_labels
from offcert.formulations.labels.outward.model import CutProblem, Ints, OutwardSide
from offcert.formulations.labels.outward.outlook import Outlook, Question, new_outlook
from offcert.formulations.labels.outward.rebuild import Half, half_of
from offcert.formulations.labels.outward.split import one_set
from offcert.formulations.labels.outward.sums import FRONT, Straddle, whole
from offcert.formulations.labels.pivot_outward.arrivals import Demands

# Labels that are stored between two looks at the clock. Arbitrary.
_STRIDE = 50_000

# Why `_next_open` stops at a demand: it can be met; there was no room to tell; or it is time to
# look at the clock, before the demand is asked about.
_MET, _NOT_TOLD, _PAUSED = range(3)


@plain
def _next_open(
    side: OutwardSide,
    asked: Question,
    outlook: Outlook,
    labels: Labels,
    demands: Demands,
    first: int,
    target: int,
    stride: int,
    answer: Ints,
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
