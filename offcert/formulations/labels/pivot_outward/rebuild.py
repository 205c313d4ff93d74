"""From a label of the searched side, and the way of the other, to a schedule."""

from __future__ import annotations

from collections import Counter

from offcert.core.platform import Kind
from offcert.formulations.labels.outward.model import CutProblem
from offcert.formulations.labels.outward.rebuild import Half, joined
from offcert.formulations.labels.outward.sums import FRONT
from offcert.formulations.labels.pivot.cut import Leg, replay
from offcert.formulations.labels.pivot.model import Nested, NestedSide
from offcert.formulations.labels.pivot.pool import Pool
from offcert.formulations.labels.pivot_outward.arrivals import Arrivals, Demands
from offcert.questions.schedule.schedule import Schedule, Transfer


def searched_half(
    data: Nested,
    index: int,
    side: NestedSide,
    pool: Pool,
    arrivals: Arrivals,
    demands: Demands,
    row: int,
) -> Half:
    """Return how the searched side goes in the arrival that makes a demand.

    Parameters
    ----------
    data : Nested
        The problem.
    index : int
        The side.
    side : NestedSide
        Its numbers.
    pool : Pool
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


def _crossing(data: Nested, side: NestedSide, legs: list[Leg], c: int, begin: int) -> Leg:
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
