"""One pivot: the smaller side searched as by the pivot program, the other asked outward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.platform import Kind
from offcert.core.threads import in_threads
from offcert.formulations.labels.atomic_heads.bound import SideEnds
from offcert.formulations.labels.common import NONE, OutOfLabelsError
from offcert.formulations.labels.outward import model as outward
from offcert.formulations.labels.outward.model import CutProblem
from offcert.formulations.labels.outward.rebuild import Half, joined
from offcert.formulations.labels.outward.sums import FRONT
from offcert.formulations.labels.pivot.arrays import LabelPool
from offcert.formulations.labels.pivot.cut import Cut, Leg, replay
from offcert.formulations.labels.pivot.model import NestedProblem, NestedSide
from offcert.formulations.labels.pivot_outward.answers import (
    Arrivals,
    Demands,
    Other,
    arrivals_of,
    demands_of,
)
from offcert.questions.schedule.schedule import Schedule, Transfer


def searched_half(
    data: NestedProblem,
    index: int,
    side: NestedSide,
    pool: LabelPool,
    arrivals: Arrivals,
    demands: Demands,
    row: int,
) -> Half:
    """Return the searched side's half of a schedule in the arrival that makes a demand.

    Parameters
    ----------
    data : NestedProblem
        The problem.
    index : int
        The side.
    side : NestedSide
        Its numbers.
    pool : LabelPool
        Its labels.
    arrivals : Arrivals
        How it can reach the cut.
    demands : Demands
        The demands that follow for the other side.
    row : int
        The demand.
    """
    arrival, end = int(demands.arrival[row]), int(demands.end[row])
    if demands.crossing[row]:
        label, c, begin = (int(value) for value in pool.straddle[arrivals.row[arrival]])
        legs, ends = replay(data, side, pool, label)
        legs.append(_crossing(data, side, legs, c, begin))
    else:
        legs, ends = replay(data, side, pool, int(arrivals.label[arrival]))
    durations = [after - one for one, after in zip(side.prefix, side.prefix[1:], strict=False)]
    starts = [one - duration for one, duration in zip(ends, durations, strict=True)]
    transfers = []
    for out, c, rank, first, last in legs:
        times = (first - end, last - end) if index == FRONT else (end - last, end - first)
        gap = data.classes[c][rank].gap
        transfers.append(Transfer(side.out if out else side.back, gap, *times))
    return Half([end - start for start in reversed(starts)], transfers)


def _crossing(data: NestedProblem, side: NestedSide, legs: list[Leg], c: int, begin: int) -> Leg:
    """Return the transfer across the cut: the last that is out of class `c` returns."""
    rank = sum(1 if out else -1 for out, of, _, _, _ in legs if of == c) - 1
    took = data.problem.platform.transfer_time(data.classes[c][rank].size, side.back)
    return False, c, rank, begin, begin + took


def schedule_from(pivot: CutProblem, front: Half | None, back: Half | None) -> Schedule | None:
    """Return the schedule that two sides make; tensors that would leave for good stay."""
    schedule = joined(pivot, front, back)
    if schedule is None or front is None or back is None:
        return None
    moves = Counter((item.gap, item.kind) for half in (front, back) for item in half.transfers)
    transfers = [
        item
        for item in schedule.transfers
        if moves[item.gap, Kind.OFFLOAD] == moves[item.gap, Kind.PREFETCH]
    ]
    return Schedule(schedule.starts, schedule.ends, transfers)


# The first round raises the target by one part in so many of what is open, each later one by twice
# as much. Arbitrary.
_FIRST_STEP = 64
# Labels that are stored on each side before both are looked at. Arbitrary.
TURN = 20_000
# Demands that are asked again with smaller tensors counted, where the other side does not refute
# them: if they are more, none is. Arbitrary.
_MOST_OPEN = 1024
# Demands of these that are followed for schedules. Arbitrary.
_FOLLOWED = 8


class OneSidedCut:
    """A cut of which one side is searched.

    Parameters
    ----------
    data : NestedProblem
        The problem.
    pivot : int
        An operation.
    workers : int
        Threads. What is found does not depend on them.

    Attributes
    ----------
    proven : int
        Ticks; no schedule is shorter.
    side : int
        The side whose search has proved that.
    stuck : bool
        Whether more work proves nothing more.

    Raises
    ------
    MethodError
        If no tensor has to be absent during the pivot.
    """

    def __init__(self, data: NestedProblem, pivot: int, workers: int = 1) -> None:
        need = data.required[pivot]
        self.levels = outward.levels_of(data.problem, need)
        self._cuts = [outward.cut(data.problem, pivot, least) for least in self.levels]
        self._data = data
        self._cut = Cut(data, pivot)
        self._workers = workers
        # A cut may know more to begin with, but that is no part of the proof.
        self.proven = sum(self.minimum)
        self.side = 0
        self.stuck = False
        self._step = 0
        self._others: dict[tuple[int, int], Other] = {}

    @property
    def pivot(self) -> int:
        """The operation."""
        return self._cut.pivot

    @property
    def ends(self) -> SideEnds:
        """The head and the tail that are taken as known."""
        return self._cut.ends

    @property
    def minimum(self) -> list[int]:
        """The head and the tail, in ticks."""
        return [self.ends.head, self.ends.tail]

    @property
    def labels(self) -> int:
        """Labels stored."""
        return self._cut.labels + sum(other.labels for other in self._others.values())

    def take(self, ends: SideEnds) -> None:
        """Use known bounds on the ends of the sides, unless these are less for one of them."""
        self._cut.take(ends)
        self.proven = max(self.proven, sum(self.minimum))

    def round(
        self,
        upper: int,
        offer: Callable[[Schedule], int],
        pause: Callable[[], None],
        max_labels: int,
    ) -> int:
        """Raise the proven bound, at most to `upper`, or find a shorter schedule.

        Parameters
        ----------
        upper : int
            Length of the best schedule known.
        offer : callable
            Given what may be a schedule, but for small tensors; returns the length of the best one
            known then.
        pause : callable
            Called from time to time; may raise.
        max_labels : int
            At about so many it gives up.

        Returns
        -------
        int
            Length of the best schedule known.

        Raises
        ------
        OutOfTimeError
            From `pause`.
        OutOfLabelsError
            At about `max_labels`. After either, everything proved before stays proved, and the
            round can be called again.
        """

        def check_in() -> None:
            pause()
            if self.labels >= max_labels:
                raise OutOfLabelsError

        if self._step == 0:
            self._step = max(1, (upper - self.proven) // _FIRST_STEP)
        target = min(upper - 1, self.proven + self._step - 1)
        side = self.one_side_searched(target, upper, pause, max_labels)
        proven, upper = self._ask(side, target, upper, offer, check_in)
        proven = min(proven, upper)
        self._step *= 2
        if proven > self.proven:
            self.proven, self.side = proven, side
        self.stuck = proven <= min(target, upper - 1)
        return upper

    def one_side_searched(
        self, target: int, upper: int, pause: Callable[[], None], max_labels: int
    ) -> int:
        """Search both sides, as far as the target asks, until one of them is done; return it.

        Each has the same number of labels at a time, so which it is does not depend on threads.
        """
        cut = self._cut

        def is_done(side: int) -> bool:
            with suppress(OutOfLabelsError):
                most = cut.stored(side) + TURN
                cut.search(side, target, upper, self.minimum[1 - side], pause, most)
                return True
            return False

        while True:
            done = list(in_threads(is_done, (0, 1), self._workers))
            if any(done):
                return min((side for side in (0, 1) if done[side]), key=cut.stored)
            if self.labels >= max_labels:
                raise OutOfLabelsError

    def _ask(
        self,
        side: int,
        target: int,
        upper: int,
        offer: Callable[[Schedule], int],
        pause: Callable[[], None],
    ) -> tuple[int, int]:
        """Ask the other side; return what all schedules take at least, as far as the target.

        And the length of the best schedule known.
        """
        arrays = self._cut.arrays[side]
        latest = target - self.minimum[1 - side]
        arrivals = arrivals_of(arrays, self._cut.pools[side], latest)
        only = np.ones(len(arrivals.counts), np.bool_)
        for level, cut in enumerate(self._cuts):
            other = self._other(side, level)
            place = _places(arrays.size, cut.sizes)
            demands = demands_of(arrays, arrivals, place, len(cut.sizes), only)
            last = level + 1 == len(self._cuts)
            most = 1 if last else _MOST_OPEN
            found = other.refute(demands, target, most, pause)
            if not found:
                return target + 1, upper
            if len(found) >= most:
                break
            only = np.isin(demands.origin, demands.which[[row for _, row in found]])
        for length, row in sorted(found)[:_FOLLOWED]:
            if length >= upper:
                break
            schedule = self._schedule(side, arrivals, demands, row, other, upper - 1, pause)
            if schedule is not None:
                upper = min(upper, offer(schedule))
        return min(found)[0], upper

    def _schedule(
        self,
        side: int,
        arrivals: Arrivals,
        demands: Demands,
        row: int,
        other: Other,
        limit: int,
        pause: Callable[[], None],
    ) -> Schedule | None:
        """Return the schedule of a demand and of how it is met, which may end within a limit."""
        cut = self._cut
        searched = cut.sides[side], cut.pools[side]
        mine = searched_half(self._data, side, *searched, arrivals, demands, row)
        theirs = other.half(demands, row, limit, pause)
        front, back = (mine, theirs) if side == FRONT else (theirs, mine)
        return schedule_from(other.pivot, front, back)

    def _other(self, side: int, level: int) -> Other:
        """Return the side that is asked while a side is searched."""
        key = side, level
        if key not in self._others:
            self._others[key] = Other(self._cuts[level], 1 - side)
        return self._others[key]


def _places(sizes: IntArray, counted: tuple[int, ...]) -> IntArray:
    """Return the class of the outward search for each size, or `NONE`."""
    place = {size: c for c, size in enumerate(counted)}
    return np.array([place.get(size, NONE) for size in sizes.tolist()], np.int64)
