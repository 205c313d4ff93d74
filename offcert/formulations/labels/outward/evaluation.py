"""Bounds on the schedules of a region: both sides searched, and the ways to their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

import numpy as np

from offcert.formulations.labels.outward import kernel
from offcert.formulations.labels.outward.kernel import forget, new_labels
from offcert.formulations.labels.outward.model import CutProblem, OutwardSide
from offcert.formulations.labels.outward.outlook import SideQuestion, new_outlook
from offcert.formulations.labels.outward.sums import BACK, FRONT, Counts, Region, least_ticks
from offcert.formulations.labels.store import LABELS, NONE, Pool

Task = TypeVar("Task")
Result = TypeVar("Result")

# Labels that one search has room for. Arbitrary.
CAPACITY = 1 << 17
# Labels that a search of one side may take, unless it is told otherwise. Arbitrary.
USUAL_ROOM = 1 << 15


@dataclass(frozen=True)
class SideTransfer:
    """A transfer in the side's own time."""

    size_class: int  # Its class.
    returns: bool  # Whether the tensor comes back.
    began: int  # Ticks from the cut.
    kept: int  # Operations that had run by then and stay run.


@dataclass(frozen=True)
class Way:
    """A bound on one side, and the transfers by which it might be attained."""

    length: int  # Ticks that the side takes at least.
    idle: int  # Ticks beyond the time that `O` takes to return, at least.
    # From the cut outward, as far as was asked; none if the search ran out of room.
    steps: tuple[SideTransfer, ...]
    complete: bool  # Whether they go that far.

    def returned(self, classes: int) -> Counts:
        """Return how many of each class have come back, less what has left."""
        counts = [0] * classes
        for step in self.steps:
            counts[step.size_class] += 1 if step.returns else -1
        return tuple(counts)


@dataclass(frozen=True)
class Evaluation:
    """A bound on the schedules of a region, and the ways that attain it."""

    length: int  # None is shorter, in ticks.
    ways: tuple[Way, Way]  # Front and back.
    before: int = 0  # Ticks of the straddling transfer before the pivot at which that is least.

    @property
    def idle(self) -> int:
        """Ticks beyond the time that `O` takes to leave and return, at least."""
        return sum(way.idle for way in self.ways)


@dataclass(frozen=True)
class _Asked:
    """The question that both sides are asked; see `Evaluator.evaluate`."""

    window: int
    ticks: tuple[int, int]
    room: int
    to_end: bool


class Evaluator:
    """A search of the sides of one pivot, which keeps its store of labels from one to the next.

    `pause` is called before every search of a side, and may raise. `labels` counts those stored so
    far.
    """

    def __init__(self, pivot: CutProblem, pause: Callable[[], None]) -> None:
        self.pivot = pivot
        self._pause = pause
        self.labels = 0
        self._store = new_labels(len(pivot.sizes), CAPACITY)
        self._questions = [new_question(side) for side in pivot.sides]
        self._outlooks = [new_outlook(side) for side in pivot.sides]
        self._twice = [
            int((side.back + side.shared * side.away)[side.here > 0].min(initial=2**62))
            for side in pivot.sides
        ]

    def evaluate(
        self,
        region: Region,
        limit: int,
        window: int,
        ticks: tuple[int, int] = (0, 0),
        room: int = USUAL_ROOM,
        to_end: bool = False,
    ) -> Evaluation | None:
        """Bound the schedules of a region; None if none of them is within the limit.

        The region is not empty. Sides are followed outward for `window` bytes, or, if `to_end`,
        until all operations have run as well. `O` is known to leave, and to return, in `ticks` at
        least. A search of one side may store `room` labels.
        """
        known = least_ticks(self.pivot, region)
        if known is None:
            return None
        at_least = max(known[FRONT], ticks[FRONT]), max(known[BACK], ticks[BACK])
        asked = _Asked(window, at_least, room, to_end)
        straddle = region.straddle
        if straddle is None:
            return self._meet(region, limit, asked, (0, 0))
        took = straddle.ticks(self.pivot)
        begins = straddle.least, took - straddle.most
        best = self._meet(region, limit, asked, begins)
        if best is None or straddle.least == straddle.most:
            return None if best is None else Evaluation(best.length, best.ways, straddle.least)
        return self._between(region, limit, asked, best)

    def straight(self, region: Region, limit: int, room: int) -> Evaluation | None:
        """Look for ways to the ends of both sides, without much ado.

        The region is one set, and what straddles the cut does so by a fixed number of ticks. The
        length found is that of a schedule, not a bound; None says nothing.
        """
        found = self.evaluate(region, limit, region.least, room=room, to_end=True)
        if found is None or not all(way.complete for way in found.ways):
            return None
        return found

    def _meet(
        self, region: Region, limit: int, asked: _Asked, begins: tuple[int, int]
    ) -> Evaluation | None:
        """Search both sides, the second within what the first leaves of the limit."""
        shortest = asked.ticks[BACK] + begins[BACK]
        front = self._way(FRONT, region, limit - shortest, asked, begins)
        if front is None:
            return None
        back = self._way(BACK, region, limit - front.length, asked, begins)
        if back is None:
            return None
        return Evaluation(front.length + back.length, (front, back))

    def _between(
        self, region: Region, limit: int, asked: _Asked, least: Evaluation
    ) -> Evaluation | None:
        """Bound a straddling transfer that may begin within an interval.

        A side whose link is free later is longer, but by no more ticks than that. So what is found
        for both ends of the interval bounds all that lies between.
        """
        straddle = region.straddle
        assert straddle is not None
        front, back = (way.length for way in least.ways)
        took = straddle.ticks(self.pivot)
        begins = straddle.most, took - straddle.least
        one, two = straddle.least, straddle.most
        # What ends after that is too long wherever the transfer begins.
        latest = [limit - other + two - one for other in (back, front)]
        later = [self._way(side, region, latest[side], asked, begins) for side in (FRONT, BACK)]
        if later[FRONT] is None or later[BACK] is None:
            return None
        far_front, far_back = (way.length for way in later if way is not None)

        def length(before: int) -> int:
            return max(front, far_front - (two - before)) + max(back, far_back - (before - one))

        corners = (one, two, two - (far_front - front), one + (far_back - back))
        before = min((min(max(corner, one), two) for corner in corners), key=length)
        if length(before) > limit:
            return None
        return Evaluation(length(before), least.ways, before)

    def _way(
        self, side: int, region: Region, limit: int, asked: _Asked, begins: tuple[int, int]
    ) -> Way | None:
        self._pause()
        straddle, store = region.straddle, self._store
        numbers = [
            region.least,
            region.most,
            begins[side],
            NONE if straddle is None or straddle.side != side else straddle.size_class,
            asked.ticks[side],
            limit,
            min(asked.window, region.least),
            self._twice[side],
            asked.room,
            asked.to_end,
            False,
        ]
        question = self._questions[side]._replace(
            low=np.array(region.low, np.int64),
            high=np.array(region.high, np.int64),
            asked=np.array(numbers, np.int64),
        )
        status, label = kernel.search(self.pivot.sides[side], question, self._outlooks[side], store)
        way = None
        if status != kernel.REFUTED:
            way = Way(
                int(store.fv[label]),
                kernel.least_link(store, label) - asked.ticks[side],
                _steps(store, label),
                status == kernel.FOUND,
            )
        self.labels += int(store.counters[LABELS])
        forget(store)
        return way


def new_question(side: OutwardSide) -> SideQuestion:
    """Return an empty question about a side, its arrays as long as it takes."""
    classes, last = side.out.shape
    sizes = classes, classes, 11, last, last, last, last, last + 1, last, classes
    return SideQuestion(*(np.zeros(size, np.int64) for size in sizes))


def _steps(store: Pool, label: int) -> tuple[SideTransfer, ...]:
    steps = []
    while store.parent[label] >= 0:
        action = int(store.action[label])
        steps.append(
            SideTransfer(
                abs(action) - 1, action > 0, int(store.began[label]), int(store.kept[label])
            )
        )
        label = int(store.parent[label])
    return tuple(reversed(steps))


class Team:
    """Evaluators for threads, which do what takes time without holding each other up.

    The pivots are the same operation, with ever smaller tensors counted. `pause` is called from
    time to time, by any of the threads, and may raise. `evaluators`, one for each of the pivots,
    are for use while no others are at work.
    """

    def __init__(
        self, pivots: Sequence[CutProblem], pause: Callable[[], None], workers: int
    ) -> None:
        self._all = [[Evaluator(pivot, pause) for pivot in pivots] for _ in range(max(1, workers))]
        self.evaluators = self._all[0]
        # Threads that stay: beginning new ones for every few regions takes a seventh of the time.
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None

    @property
    def labels(self) -> int:
        """Labels stored so far."""
        return sum(evaluator.labels for each in self._all for evaluator in each)

    def each(
        self, function: Callable[[Sequence[Evaluator], Task], Result], items: Iterable[Task]
    ) -> list[Result]:
        """Return a function's result for each item, called with evaluators nobody else uses.

        If it raises for one of them, that is raised once nothing is going on any more.
        """
        if self._pool is None:
            return [function(self.evaluators, item) for item in items]
        free: SimpleQueue[list[Evaluator]] = SimpleQueue()
        for evaluators in self._all:
            free.put(evaluators)

        def work(item: Task) -> Result:
            evaluators = free.get()
            try:
                return function(evaluators, item)
            finally:
                free.put(evaluators)

        futures = [self._pool.submit(work, item) for item in items]
        wait(futures)
        return [future.result() for future in futures]
