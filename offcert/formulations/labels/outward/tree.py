"""Regions, divided until no schedule shorter than the best known is left in any.

The region whose schedules may be shortest comes next. What is left of it is found (``examine``);
then either a set and two ways are found that make a schedule as short as that, or it is divided
further. Small tensors are free at first; only where a region cannot be divided any more, they are
counted as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from offcert.formulations.labels.outward.evaluation import CAPACITY, USUAL_ROOM, Evaluator, Team
from offcert.formulations.labels.outward.model import CutProblem, cut
from offcert.formulations.labels.outward.rebuild import replay, schedule_of
from offcert.formulations.labels.outward.split import (
    Agenda,
    RegionDivision,
    RegionSplit,
    Remains,
    SplitKind,
    best_division,
    examine,
    few_sets,
    of_set,
    of_straddle,
    of_ways,
    one_set,
)
from offcert.formulations.labels.outward.sums import (
    Counts,
    Region,
    Straddle,
    crossed,
    to_spare,
    whole,
)
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Windows of a region: sides are followed until one part in so many of the pivot's bytes is back.
# Arbitrary.
WINDOWS = 20, 5, 1
# Sets up to which a region's sets are looked at one by one. Measured with benchmarks/certify.py: at
# 200, every set of ResNet-152 at 224 and 25 % had its small tensors counted.
FEW_SETS = 100
# Sets up to which they are looked at one by one before their region is searched as a whole.
# Measured on Inception v3 at 500, 50 %: 34 s before, 17 s after.
AT_ONCE = 32
# Regions that are looked at together. Arbitrary.
TOGETHER = 8
# Sets of a region that are followed to the ends of both sides. Arbitrary.
_ATTEMPTS = 3
# Labels of one side that following a set may take while small tensors are free. Arbitrary.
_ROOM = 1 << 13
# Labels that following sets may take in all; beyond it, no more than half of all labels. Arbitrary.
_FOLLOWED_ANYWAY = 100_000
# Sets that are evaluated first: as many that move quickest as with most bytes to spare. Arbitrary.
_LOOKED_AT = 8


@dataclass(eq=False)
class Node:
    """A region, and how it was divided."""

    detail: int  # Number of the set of tensors that are counted.
    window: int  # How far it is followed outward.
    region: Region  # All of it.
    length: int  # None of its schedules is shorter, in ticks.
    ticks: tuple[int, int] = (0, 0)  # In which what is out leaves, and returns, at least.
    split: RegionSplit | None = None  # By which it was divided, if it was.
    children: list[Node] = field(default_factory=list)  # In the order of the parts.


class Tree:
    """The search at one pivot.

    Tensors of fewer bytes than `details`, which decrease, are free. `pause` is called from time to
    time; if it raises, the search can be taken up again where it was. What is found does not depend
    on the number of threads, `workers`. The first of the `roots` is where nothing straddles the
    cut; on a duplex link it is the only one.
    """

    def __init__(
        self,
        problem: Problem,
        pivot: int,
        details: tuple[int, ...],
        pause: Callable[[], None],
        workers: int = 1,
    ) -> None:
        self._team = Team([cut(problem, pivot, below) for below in details], pause, workers)
        self.evaluators = self._team.evaluators
        self.details = details
        self.nodes = 0
        self._open: Agenda[Node] = Agenda()
        self._stuck: list[Node] = []
        self._followed = 0
        # By what is counted and what is under way: sets that need not be followed again.
        self._tried: set[tuple[int, Counts, Straddle | None]] = set()
        coarse = self.evaluators[0].pivot
        regions = crossed(coarse, whole(coarse), range(len(coarse.sizes)))
        self.roots = [Node(0, 0, region, 0) for region in regions]
        for node in self.roots:
            self._open.push(node)

    @property
    def labels(self) -> int:
        """Labels stored so far."""
        return self._team.labels

    def bound(self, upper: int) -> int:
        """Return ticks that no schedule is shorter than, at most `upper`."""
        return min([upper, self._open.least(upper), *(node.length for node in self._stuck)])

    def finished(self, upper: int) -> bool:
        """Return whether more work proves nothing more."""
        known = min([upper, *(node.length for node in self._stuck)])
        return self._open.least(upper) >= known

    def step(self, upper: int, offer: Callable[[Schedule], int]) -> int:
        """Work on the regions whose turn it is; return the length of the best schedule known then.

        That was `upper` before, in ticks. `offer` is given what may be a schedule, but for small
        tensors, and returns the length of the best one known then.
        """
        nodes = self._open.take(TOGETHER)
        try:
            found = self._team.each(lambda mine, node: self._looked_at(mine, node, upper), nodes)
            for left in found:
                upper = self._work_on(nodes[0], left, upper, offer)
                del nodes[0]
                self.nodes += 1
        except BaseException:
            for node in nodes:
                # The node has not been divided, or its children may be incomplete.
                node.split, node.children = None, []
                self._open.push(node)
            raise
        return upper

    def _looked_at(
        self, evaluators: Sequence[Evaluator], node: Node, upper: int
    ) -> Remains | list[Counts] | None:
        """Return the rest of a region, or its sets if they are few; None if nothing is left."""
        evaluator = evaluators[node.detail]
        few = few_sets(evaluator.pivot, node.region, upper - 1, AT_ONCE)
        if few is not None:
            # To search them one by one takes less than to search the region, which often tells
            # nothing.
            return few or None
        window = self._window(node.detail, node.window)
        room = self._room(node)
        return examine(evaluator, node.region, upper - 1, window, node.ticks, room)

    def _work_on(
        self,
        node: Node,
        left: Remains | list[Counts] | None,
        upper: int,
        offer: Callable[[Schedule], int],
    ) -> int:
        if left is None:
            node.length = max(node.length, upper)
        elif isinstance(left, list):
            self._adopt(node, self._one_by_one(node, node.region, left))
        else:
            node.region, node.ticks = left.region, left.ticks
            if left.evaluation.length <= node.length:
                return self._divide(node, left, upper, offer)
            node.length = left.evaluation.length
            last = node.detail + 1 == len(self.details)
            self._open.push(node, ripe=last and node.region.is_one())
        return upper

    def _window(self, detail: int, window: int) -> int:
        """Return the bytes to follow."""
        return max(1, self.evaluators[detail].pivot.need // WINDOWS[window])

    def _room(self, node: Node) -> int:
        """Return the labels of one side: more where only smaller tensors are left to divide by."""
        last = node.window + 1 == len(WINDOWS)
        return CAPACITY if last and node.region.is_one() else USUAL_ROOM

    def _divide(
        self, node: Node, remains: Remains, upper: int, offer: Callable[[Schedule], int]
    ) -> int:
        region = remains.region
        promising = self._promising(node, remains, upper - 1)
        for counts in promising:
            self._tried.add((node.detail, counts, region.straddle))
            found = self._attempt(node, remains, counts, upper - 1)
            if found is None:
                continue
            schedule, length = found
            if schedule is not None:
                upper = offer(schedule)
            if length == node.length:
                # Only smaller tensors can show that it takes longer.
                if upper > length:
                    self._count_more(node, remains)
                return upper
        example = promising[0] if promising else None
        if remains.sets is not None and not region.is_one() and len(remains.sets) <= FEW_SETS:
            sets = sorted(tuple(row) for row in remains.sets.counts.tolist())
            self._adopt(node, self._one_by_one(node, remains.region, sets))
            return upper
        division = self._division(node, remains, example, upper - 1)
        if division is None:
            self._refine(node, remains)
        else:
            self._adopt(node, division)
        return upper

    def _division(
        self, node: Node, remains: Remains, counts: Counts | None, limit: int
    ) -> RegionDivision | None:
        """Return a division that gains something, or any if none does."""
        evaluator = self.evaluators[node.detail]
        asked = limit, self._window(node.detail, node.window)
        ways = enumerate(remains.evaluation.ways)
        replays = [replay(evaluator.pivot, remains.region, side, way) for side, way in ways]
        first = [*of_ways(remains, replays), *of_straddle(remains)]
        best = best_division(evaluator, remains, first, *asked)
        if best is not None and best.gain > limit - remains.evaluation.length:
            return best
        other = best_division(evaluator, remains, of_set(remains, counts), *asked)
        divisions = [division for division in (best, other) if division is not None]
        chosen = max(divisions, key=lambda division: division.gain, default=None)
        if chosen is not None and chosen.gain == 1 and node.window + 1 < len(WINDOWS):
            return None
        return chosen

    def _adopt(self, node: Node, division: RegionDivision) -> None:
        node.split = division.split
        for part, length in zip(division.parts, division.lengths, strict=True):
            self._follow(node, node.detail, node.window, part, max(length, node.length))

    def _one_by_one(self, node: Node, region: Region, sets: Sequence[Counts]) -> RegionDivision:
        split = RegionSplit(SplitKind.SETS, sets=tuple(sets))
        parts = split.parts(region, self.evaluators[node.detail].pivot.sizes)
        return RegionDivision(split, parts, (node.length,) * len(parts))

    def _attempt(
        self, node: Node, remains: Remains, counts: Counts, limit: int
    ) -> tuple[Schedule | None, int] | None:
        """Follow a set to the ends of both sides; return a schedule, and how long it is.

        None if it takes too long.
        """
        evaluator = self.evaluators[node.detail]
        stored = self.labels
        if self._followed > stored // 2 + _FOLLOWED_ANYWAY:
            return None
        region = one_set(remains.region, counts, evaluator.pivot.sizes)
        if region.straddle is not None:
            before = remains.evaluation.before
            region = replace(region, straddle=replace(region.straddle, least=before, most=before))
        # Where all tensors are counted, the set is all that there is.
        room = USUAL_ROOM if node.detail > 0 else _ROOM
        found = evaluator.straight(region, limit, room)
        self._followed += self.labels - stored
        if found is None:
            return None
        return schedule_of(evaluator.pivot, region, found), found.length

    def _promising(self, node: Node, remains: Remains, limit: int) -> list[Counts]:
        """Return sets that schedules may have out, the best first, and each only once.

        The sets that take least time, and those that leave most bytes to spare, are looked at. If
        there are too many sets to be listed, none is.
        """
        evaluator = self.evaluators[node.detail]
        pivot, region, sets = evaluator.pivot, remains.region, remains.sets
        if sets is None:
            return []
        sets = sets.only(sets.ticks.sum(axis=0) <= limit - remains.evaluation.idle)
        ticks, spare = sets.ticks.sum(axis=0), -to_spare(pivot, sets)
        orders = np.lexsort((spare, ticks)), np.argsort(spare, kind="stable")
        found: dict[Counts, int] = {}
        for place in np.stack(orders, axis=1).ravel()[: 2 * _LOOKED_AT].tolist():
            counts = tuple(sets.counts[place].tolist())
            if counts in found or (node.detail, counts, region.straddle) in self._tried:
                continue
            part = one_set(region, counts, pivot.sizes)
            evaluation = evaluator.evaluate(part, limit, self._window(node.detail, 0))
            found[counts] = limit + 1 if evaluation is None else evaluation.length
        best = sorted((length, counts) for counts, length in found.items() if length <= limit)
        return [counts for _, counts in best[:_ATTEMPTS]]

    def _refine(self, node: Node, remains: Remains) -> None:
        """Look further outward, or count smaller tensors as well."""
        if node.window + 1 == len(WINDOWS):
            self._count_more(node, remains)
            return
        node.split = RegionSplit(SplitKind.WINDOW)
        self._follow(node, node.detail, node.window + 1, remains.region, node.length)

    def _count_more(self, node: Node, remains: Remains) -> None:
        """Count smaller tensors as well.

        As these make for many more labels, sides are followed as little as at first.
        """
        if node.detail + 1 == len(self.details):
            self._stuck.append(node)
            return
        node.split = RegionSplit(SplitKind.DETAIL)
        coarse, fine = (self.evaluators[node.detail + more].pivot for more in (0, 1))
        for region in finer(coarse, fine, remains.region):
            self._follow(node, node.detail + 1, 0, region, node.length)

    def _follow(self, node: Node, detail: int, window: int, region: Region, length: int) -> None:
        child = Node(detail, window, region, length, node.ticks)
        node.children.append(child)
        self._open.push(child)


def finer(coarse: CutProblem, fine: CutProblem, region: Region) -> list[Region]:
    """Return a region with smaller tensors counted as well: by what of them straddles the cut."""
    added = len(fine.sizes) - len(coarse.sizes)
    more = sum(
        size * count for size, count in zip(fine.sizes[:added], fine.most[:added], strict=True)
    )
    same = region.straddle
    if same is not None:
        same = replace(same, size_class=same.size_class + added)
    base = Region(
        (*(0,) * added, *region.low),
        (*fine.most[:added], *region.high),
        max(region.least, fine.need),
        region.most + more,
        same,
    )
    return crossed(fine, base, range(added)) if same is None else [base]
