"""The schedule that the ways of both sides make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offcert.core.platform import Kind
from offcert.formulations.labels.outward import kernel
from offcert.formulations.labels.outward.evaluation import Evaluation, Way, new_question
from offcert.formulations.labels.outward.model import NOTHING, CutProblem, OutwardSide
from offcert.formulations.labels.outward.outlook import look, look_at_cut, new_outlook, prepare
from offcert.formulations.labels.outward.sums import BACK, FRONT, Region
from offcert.questions.schedule.schedule import Schedule, Transfer


@dataclass(frozen=True)
class Replay:
    """The course of a way."""

    bytes_out: int  # If fewer bytes were out at the cut, the operations would not run when they do.
    used: list[int]  # Of each class how many are back at most at one time.
    ends: list[int]  # When each operation that has run ends, in the side's own time.


def replay(pivot: CutProblem, region: Region, index: int, way: Way) -> Replay:
    """Follow the steps of a side, `index`, that were found for a region."""
    return _Follower(pivot, region, index).follow(way)


class _Follower:
    def __init__(self, pivot: CutProblem, region: Region, index: int) -> None:
        self.side: OutwardSide = pivot.sides[index]
        self.question = new_question(self.side)._replace(
            low=np.array(region.low, np.int64),
            high=np.array(region.high, np.int64),
            asked=np.array([region.least, region.most, 0, -1, 0, 0, 0, 0, 0, 0, 0], np.int64),
        )
        prepare(self.side, self.question)
        self.outlook = new_outlook(self.side)
        look_at_cut(self.question, self.outlook)
        self.returned = self.outlook.now
        self.used = [0] * len(pivot.sizes)
        self.needed, self.moved, self.idle = NOTHING, 0, 0
        self.ends: list[int] = []
        straddle = region.straddle
        if straddle is not None and straddle.side == index:
            self.returned[straddle.size_class] = -1
            self.moved = -pivot.sizes[straddle.size_class]

    def follow(self, way: Way) -> Replay:
        self._run(0)
        for step in way.steps:
            self._step(step.size_class, step.returns, step.began, step.kept)
        return Replay(self.needed, self.used, self.ends)

    def _step(self, c: int, returns: bool, began: int, kept: int) -> None:
        side = self.side
        del self.ends[kept:]
        self.returned[c] += 1 if returns else -1
        self.moved += int(side.size[c]) * (1 if returns else -1)
        self.used[c] = max(self.used[c], int(self.returned[c]))
        if returns:
            for operation in range(kept):
                if self.idle + side.prefix[operation + 1] > began:
                    self._needs(operation)
        self._run(began + int((side.back if returns else side.away)[c]))

    def _needs(self, operation: int) -> None:
        need = int(self.side.need[operation])
        if need > 0:
            self.needed = max(self.needed, need + self.moved)

    def _run(self, free: int) -> None:
        """Run operations as far as possible."""
        side, done = self.side, len(self.ends)
        look(side, self.question, self.outlook)
        asked = side, self.question, self.outlook
        # All that has returned is looked at, so no class makes a difference.
        idle, k = kernel.run(*asked, 0, 0, self.moved, free, self.idle, done)
        self.idle = int(idle)
        for operation in range(done, k):
            self._needs(operation)
            self.ends.append(self.idle + int(side.prefix[operation + 1]))


_RETURNS = Kind.OFFLOAD, Kind.PREFETCH
_DEPARTS = Kind.PREFETCH, Kind.OFFLOAD


class _NoTensorError(Exception):
    """More tensors of a class leave than there are."""


def schedule_of(pivot: CutProblem, region: Region, evaluation: Evaluation) -> Schedule | None:
    """Return the schedule that the ways of both sides make, or None.

    The region is one set, and `evaluation` goes as far outward as there is anything. Of each class
    the last out returns first. The problem need not admit the schedule: tensors were told apart by
    their sizes alone, and memory was not looked at while the device is idle.
    """
    durations, at = pivot.problem.trace.durations, pivot.operation
    ways, before = enumerate(evaluation.ways), evaluation.before
    try:
        moved = [_transfers(pivot, region, index, way, before) for index, way in ways]
    except _NoTensorError:
        return None
    front, back = (
        replay(pivot, region, index, way).ends for index, way in enumerate(evaluation.ways)
    )
    if [len(front), len(back)] != [at, len(durations) - at]:
        return None
    # When the cut is: all of the front comes before it.
    last = [-item.start for item in moved[FRONT]]
    start = max([*front[-1:], *last], default=0)
    starts = [start - end for end in reversed(front)]
    starts += [start + end - duration for end, duration in zip(back, durations[at:], strict=True)]
    return Schedule(
        starts,
        [one + duration for one, duration in zip(starts, durations, strict=True)],
        [
            Transfer(item.kind, item.gap, start + item.start, start + item.end)
            for item in (*moved[FRONT], *moved[BACK])
        ],
    )


def _transfers(
    pivot: CutProblem, region: Region, index: int, way: Way, before: int
) -> list[Transfer]:
    """Return the transfers of a side, in true time from the cut on (less than 0 before it)."""
    side = pivot.sides[index]
    out, spare = _tensors(pivot, region, index)

    def transfer(returns: bool, c: int, gap: int, began: int) -> Transfer:
        kind = (_RETURNS if returns else _DEPARTS)[index]
        ended = began + int((side.back if returns else side.away)[c])
        first, last = (-ended, -began) if index == FRONT else (began, ended)
        return Transfer(kind, gap, first, last)

    found = []
    straddle = region.straddle
    if straddle is not None and straddle.side == index:
        c, took = straddle.size_class, straddle.ticks(pivot)
        began = before - took if index == FRONT else -before
        found.append(transfer(False, c, _taken(spare[c], out[c]), began))
    for step in way.steps:
        c = step.size_class
        gap = _taken(out[c]) if step.returns else _taken(spare[c], out[c])
        found.append(transfer(step.returns, c, gap, step.began))
    return found


def _tensors(
    pivot: CutProblem, region: Region, index: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the gaps of each class that are out at the cut, and the others, the next one last."""
    out, spare = [], []
    for front, back, count in zip(*pivot.members, region.low, strict=True):
        shared = [gap for gap in front if gap in set(back)][:count]
        out.append(shared)
        here = (front, back)[index]
        spare.append([gap for gap in here if gap not in shared][::-1])
    return out, spare


def _taken(source: list[int], target: list[int] | None = None) -> int:
    if not source:
        raise _NoTensorError
    gap = source.pop()
    if target is not None:
        target.append(gap)
    return gap
