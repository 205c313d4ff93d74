"""Heads and tails that move the same tensors: a lower bound far above that of either apart.

Cut a schedule where an operation, the *pivot*, starts. If nothing returns before the cut and
nothing leaves after it, both sides move the same tensors. Head and tail (``heads``) can both
be as short as possible only if one set of tensors suits both. Here a sequence of transfers on one
side is known by the bytes that it moves and by how many of each *counted* class; both sides of a
schedule agree in that. Counting everything would take too many labels. So levels follow each other,
each with one more class counted, and each looks only where the level before has found that a
schedule within the limit may pass. Which class to count next is read off the best combination
found: one of which the two sides move different numbers, or more tensors than there are. If there
is none, the combination is a schedule.

*What moves on one side only.* A tensor may leave and return before the cut, or leave and return
after it: because its gap is over, or not yet open, or because that pays. It is not out at the cut,
so without it the side still moves what the pivot needs. Hence two keys match if they become equal
by taking tensors off either, and still have the units that the pivot needs. Of tensors of few bytes
any number could be taken off. So only tensors from a certain size on, the *movables*, are looked
at, and all others taken for absent whenever they may be. A tensor of several gaps is not movable.

docs/theory/matched.md has the argument, with an example on paper.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from offcert.formulations.labels.common import OutOfLabelsError
from offcert.formulations.labels.ends.combination import (
    MatchedWay,
    as_orders,
    best_combination,
    misused,
)
from offcert.formulations.labels.ends.level import Level, search_level
from offcert.formulations.labels.ends.orders import Orders
from offcert.formulations.labels.ends.side import HeadSide, Movable, back, front
from offcert.formulations.labels.ends.tables import counting, uncounted
from offcert.proofs.kinds.labels import Heads
from offcert.questions.schedule.problem import Problem

# Units up to which bytes that have moved are told apart, unless the caller says otherwise.
# Arbitrary.
FINEST = 1 << 21
# Tensors of fewer bytes than the pivot's need over this are small. There is little to gain by them;
# they are counted from the first level on, so that none is used again and again to make sums fit.
# Arbitrary.
SMALL = 4096


@dataclass
class _Stage:
    """A level that has been searched for a target.

    `length` is that of the best combination, at most the target; `following` the class that the
    next level counts as well, -1 if there is none.
    """

    target: int
    counted: tuple[int, ...]
    levels: tuple[Level, Level]
    length: int = 0
    following: int = -1
    labels: int = 0


class MatchedSearch:
    """One pivot and its movables.

    Parameters
    ----------
    problem : Problem
        Atomic transfers; any trace and link.
    required : sequence of int
        Bytes that must be absent during each operation, from ``relaxations.required_absent``.
    ends : Heads
        Proved ends of the sides of the pivot.
    free_below : int
        Bytes from which on a tensor is a movable.
    finest : int
        Into how many units the bytes that must leave are divided at most. Fewer units mean that
        sizes are rounded up further, and fewer labels.

    Attributes
    ----------
    bound : int
        No schedule is shorter, in ticks.
    proof : Heads
        The proof of the bound; with no levels if the ends prove it.
    labels : int
        Kept at all levels of the proof.
    orders : Orders or None
        Of the best combination found last. If `exact`, they promise a schedule of its length, which
        the problem need not admit. Whoever takes them sets this to None.
    exact : bool
        Whether more levels prove nothing more.
    begun : bool
        Whether any level could be searched.
    """

    def __init__(
        self,
        problem: Problem,
        required: Sequence[int],
        ends: Heads,
        free_below: int,
        finest: int = FINEST,
    ) -> None:
        self.ends = ends
        self.bound = ends.head + ends.tail
        self.orders: Orders | None = None
        movables = _movables(problem, ends.pivot, free_below)
        self.sides = tuple(
            side(problem, required, ends.pivot, gaps)
            for side, gaps in zip((front, back), movables, strict=True)
        )
        sizes = {problem.trace.gap_size(gap) for gaps in movables for gap in gaps}
        grid = math.gcd(*sizes) or 1
        self.unit = grid * max(1, -(-max(required) // (grid * finest)))
        self.proof = replace(ends, unit=self.unit, free_below=free_below)
        self.labels = 0
        self.classes = [_classes(side, sizes) for side in self.sides]
        self.amounts = [
            max(len(one), len(two)) for (_, one), (_, two) in zip(*self.classes, strict=True)
        ]
        self.tables = [
            uncounted(side, classes, self.unit)._replace(base=np.array(self.amounts, np.int64) + 1)
            for side, classes in zip(self.sides, self.classes, strict=True)
        ]
        # Units of what is absent during the pivot.
        self._least = -(-self.sides[0].required[-1] // self.unit)
        # Sides that need not have anything in common match in every way.
        self.exact = self._least == 0
        small = self.sides[0].required[-1] // SMALL
        self._small = [c for c, (size, _) in enumerate(self.classes[0]) if size < small]
        self.begun = False
        self._stages: list[_Stage] = []
        self._spare = 0

    def improve(self, target: int, max_labels: int, pause: Callable[[], None]) -> None:
        """Raise `bound`, at most to `target`.

        Levels that were searched for a larger target hold for this one, too.

        Raises
        ------
        OutOfLabelsError
            If a level needs more than `max_labels` on one side; what is proved by then stays.
        """
        while self._stages and self._stages[-1].target < target:
            self._stages.pop()
        if not self._stages:
            counted = tuple(self._small)
            levels = self._level((None, None), counted, target, max_labels, pause)
            self._spare = self._most_spare(levels)
            self._enter(_Stage(target, counted, levels))
        while self._stages[-1].length < target:
            stage = self._stages[-1]
            if stage.following < 0:
                self.exact = True
                return
            counted = (*stage.counted, stage.following)
            levels = self._level(stage.levels, counted, target, max_labels, pause)
            self._enter(_Stage(target, counted, levels))

    def _enter(self, stage: _Stage) -> None:
        """Take note of a level's bound, and of the sizes that the next one has to count."""
        self.begun = True
        self._stages.append(stage)
        stage.labels = sum(level.labels.w.size for level in stage.levels)
        best = best_combination(stage.levels)
        stage.length = min(best.length, stage.target)
        if best.length < stage.target:
            ways = self._ways(stage.levels, best.labels)
            wrong = misused(ways, stage.counted)
            stage.following = max(wrong, key=wrong.__getitem__) if wrong else -1
            self.orders = as_orders(ways, best.length)
        for level in stage.levels:
            level.forget()
        if stage.length > self.bound:
            self.bound = stage.length
            levels = tuple(self._sizes(stage.counted) for stage in self._stages)
            self.proof = replace(self.proof, levels=levels, spare=self._spare)
            self.labels = sum(stage.labels for stage in self._stages)

    def _most_spare(self, ground: tuple[Level, Level]) -> int:
        """Return how many tensors fit into what any label moves, on top of what the pivot needs.

        With sizes rounded up even all of them may: then nobody can verify what is proved.
        """
        most = self.unit * max(int(level.labels.w.max()) for level in ground)
        moved = self.sides[0].required[-1]
        for spare, size in enumerate(sorted(self._all_sizes())):
            moved += size
            if -(-moved // self.unit) * self.unit > most:
                return spare
        return sum(self.amounts)

    def _all_sizes(self) -> Iterator[int]:
        for (size, _), amount in zip(self.classes[0], self.amounts, strict=True):
            yield from [size] * amount

    def _ways(self, levels: tuple[Level, Level], labels: tuple[int, int]) -> list[MatchedWay]:
        return [
            MatchedWay(side, classes, level, label)
            for side, classes, level, label in zip(
                self.sides, self.classes, levels, labels, strict=True
            )
        ]

    def _level(
        self,
        before: tuple[Level | None, Level | None],
        counted: Sequence[int],
        target: int,
        max_labels: int,
        pause: Callable[[], None],
    ) -> tuple[Level, Level]:
        """Search both sides; the first level, with none before, knows only when each has to end."""
        limits = [target - 1, target - 1]
        if before == (None, None):
            limits = [target - 1 - self.ends.tail, target - 1 - self.ends.head]
        levels = []
        for tables, known, limit in zip(self.tables, before, limits, strict=True):
            found = counting(tables, counted)
            if found is None:
                raise OutOfLabelsError
            levels.append(search_level(found[0], known, limit, found[1], max_labels, pause))
        one, two = levels
        self._match(one, two, target - 1, pause)
        return one, two

    def _sizes(self, counted: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(self.classes[0][c][0] for c in counted))

    def _match(self, one: Level, two: Level, limit: int, pause: Callable[[], None]) -> None:
        """Find partners on the other side, and what both may pass within the limit."""
        mine, yours = one.table(self._least), two.table(self._least)
        for level, own, other in ((one, mine, yours), (two, yours, mine)):
            level.match(own, other[0], self._least)
            level.keep(limit, pause)


def _movables(
    problem: Problem, pivot: int, free_below: int
) -> tuple[frozenset[int], frozenset[int]]:
    """Return gaps that open before the pivot, and such as close after it, of large tensors."""
    trace = problem.trace
    gaps = Counter(gap.tensor for gap in trace.gaps)
    movables = [
        index
        for index, gap in enumerate(trace.gaps)
        if gaps[gap.tensor] == 1 and trace.gap_size(index) >= free_below
    ]
    return (
        frozenset(gap for gap in movables if trace.gaps[gap].before < pivot),
        frozenset(gap for gap in movables if trace.gaps[gap].after > pivot),
    )


def _classes(side: HeadSide, sizes: Collection[int]) -> list[tuple[int, list[Movable]]]:
    """Return the items by size; where one side has none of a size, one that is never ready."""
    classes = side.classes()
    last = len(side.prefix) - 1
    return [
        (size, classes.get(size, [Movable(-1, size, 0, last, (False,) * (last + 1))]))
        for size in sorted(sizes)
    ]
