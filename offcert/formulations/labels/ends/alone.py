"""One side's least end, by counting tensors only where it matters."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from offcert.formulations.labels.ends import best_first
from offcert.formulations.labels.ends.side import HeadSide, Movable, starts_too_early
from offcert.formulations.labels.ends.tables import SideTables, counting, uncounted
from offcert.formulations.labels.store import (
    BEST,
    FINALS,
    FIRST_CAPACITY,
    LABELS,
    NEVER,
    Store,
    grown,
    new_store,
)

# Units up to which required bytes are told apart. Arbitrary.
_FINEST = 1 << 20
# Labels that are expanded between two looks at the clock. Arbitrary.
STRIDE = 20_000


_Choice = Callable[[set[int]], int]


class SideSearch:
    """Raises the bound on the end of one side, round by round.

    Every round solves a relaxation in which the tensors of some classes may leave several times.
    The next round counts one class more (decremental state-space relaxation), until no tensor
    leaves twice. Which class to count is a choice among those used too often: the largest is best
    where bytes are scarce early, as in most tails, the smallest where sums have to fit, as in most
    heads. Each choice has its own rounds.

    Attributes
    ----------
    bound : int
        No schedule's side ends before, in ticks.
    counted : tuple of int
        Sizes of the classes that are counted.
    labels : int
        Stored to establish `bound`.
    way : tuple of int or None
        The sequence of transfers to that end, once `exact`.
    exact : bool
        Whether no tensor leaves twice in the least end found, so that counting more classes proves
        nothing more.
    """

    def __init__(self, side: HeadSide) -> None:
        self.side = side
        grid = math.gcd(*(item.size for item in side.items)) or 1
        self.unit = grid * max(1, -(-max(side.required) // (grid * _FINEST)))
        self._tables: SideTables | None = None
        self.classes = sorted(side.classes().items())
        self.bound = side.floor[0]
        self.counted: tuple[int, ...] = ()
        self.labels = 0
        self.way: tuple[int, ...] | None = None
        self.exact = False
        # Classes that the next round counts, for each choice among those used too often.
        self._next: dict[_Choice, list[int]] = {max: [], min: []}

    def tables(self) -> SideTables:
        """Return the side as arrays, with no class counted."""
        if self._tables is None:
            self._tables = uncounted(self.side, self.classes, self.unit)
        return self._tables

    def improve(self, limit: int, max_labels: int, pause: Callable[[], None]) -> None:
        """Raise `bound`, at most to one more than `limit`, with at most `max_labels` a round."""
        for choice in self._next:
            while self.bound <= limit and not self.exact:
                if not self._round(choice, limit, max_labels, pause):
                    break

    def _round(
        self, choice: _Choice, limit: int, max_labels: int, pause: Callable[[], None]
    ) -> bool:
        """Solve the relaxation that a choice has come to; return whether another may help."""
        counted = self._next[choice]
        found = counting(self.tables(), counted)
        assert found is not None
        labels = new_store(FIRST_CAPACITY, 2, 0, best_first=True)
        scratch = np.zeros(2, np.int64), np.zeros(0, np.int64)
        limits = np.array([limit, NEVER, limit, NEVER])
        best_first.start(found[0], labels, *scratch, limits)
        while True:
            status = best_first.run(found[0], labels, *scratch, limits, STRIDE)
            stored = int(labels.counters[LABELS])
            if status == best_first.EXHAUSTED:
                self._note(limit + 1, stored, counted)
                return True
            self._note(int(labels.counters[BEST]), stored, counted)
            if status == best_first.COMPLETE:
                return self._count_more(choice, labels)
            pause()
            if stored >= max_labels:
                return False
            if status == best_first.FULL:
                labels = grown(labels)

    def _note(self, bound: int, stored: int, counted: list[int]) -> None:
        if bound > self.bound:
            self.bound, self.labels = bound, stored
            self.counted = tuple(self.classes[c][0] for c in counted)

    def _count_more(self, choice: _Choice, labels: Store) -> bool:
        """Count one of the classes that the optimal sequence has overused, if there is any."""
        path = []
        label = int(labels.counters[FINALS])
        while labels.parent[label] >= 0:
            path.append((int(labels.action[label]), int(labels.parent[label])))
            label = int(labels.parent[label])
        used = [0] * len(self.classes)
        wrong = set()
        gaps = []
        for c, label in reversed(path):
            items = self.classes[c][1]
            if used[c] >= len(items) or self._too_early(choice, c, items[used[c]], labels, label):
                wrong.add(c)
            else:
                gaps.append(items[used[c]].gap)
            used[c] += 1
        if not wrong:
            self.way, self.exact = tuple(gaps), True
            return False
        more = [*self._next[choice], choice(wrong)]
        if counting(self.tables(), more) is None:
            return False
        self._next[choice] = more
        return True

    def _too_early(self, choice: _Choice, c: int, item: Movable, labels: Store, label: int) -> bool:
        """Whether `item`, not of a counted class, left after `label` before it was ready."""
        if c in self._next[choice]:
            return False
        times, run = (int(labels.t[label]), int(labels.s[label])), int(labels.k[label])
        return starts_too_early(self.side.prefix, self.classes[c][1][0], item, times, run)
