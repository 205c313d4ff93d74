"""Following the transfers of one side again, outward: what they need, and when operations run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offcert.formulations.labels.outward import kernel
from offcert.formulations.labels.outward.evaluation import Evaluation, Way, new_question
from offcert.formulations.labels.outward.model import NOTHING, CutProblem, OutwardSide
from offcert.formulations.labels.outward.outlook import look, look_at_cut, new_outlook
from offcert.formulations.labels.outward.question import prepare
from offcert.formulations.labels.outward.region import Region


@dataclass(frozen=True)
class Replay:
    """What a way does.

    Attributes
    ----------
    bytes_out : int
        If fewer bytes were out at the cut, the operations would not run when they do.
    used : list of int
        Of each class how many are back at most at one time.
    ends : list of int
        When each operation that has run ends, in the side's own time.
    """

    bytes_out: int
    used: list[int]
    ends: list[int]


def begins_of(pivot: CutProblem, region: Region, evaluation: Evaluation) -> tuple[int, int]:
    """Return when the link is free on either side at first."""
    straddle = region.straddle
    if straddle is None:
        return 0, 0
    return evaluation.before, straddle.ticks(pivot) - evaluation.before


def replay(pivot: CutProblem, region: Region, index: int, way: Way) -> Replay:
    """Follow the steps of a side.

    Parameters
    ----------
    pivot : CutProblem
        What was searched.
    region : Region
        Likewise.
    index : int
        The side.
    way : Way
        What was found.
    """
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
        """Run what can be run."""
        side, done = self.side, len(self.ends)
        look(side, self.question, self.outlook)
        asked = side, self.question, self.outlook
        # All that has returned is looked at, so no class makes a difference.
        idle, k = kernel.run(*asked, 0, 0, self.moved, free, self.idle, done)
        self.idle = int(idle)
        for operation in range(done, k):
            self._needs(operation)
            self.ends.append(self.idle + int(side.prefix[operation + 1]))
