"""One side's least end, by counting tensors only where it matters."""

from __future__ import annotations

import math
from collections.abc import Callable

from offcert.formulations.labels.atomic_heads import kernel
from offcert.formulations.labels.atomic_heads.arrays import counting, uncounted
from offcert.formulations.labels.atomic_heads.kernel import Tables
from offcert.formulations.labels.atomic_heads.side import HeadSide, Mover

# Required bytes are told apart up to this many units.
_FINEST = 1 << 20
# Labels expanded between two looks at the clock.
_STRIDE = 20_000
_FIRST_CAPACITY = 1 << 12


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
        self._tables: Tables | None = None
        self.classes = sorted(side.classes().items())
        self.bound = side.floor[0]
        self.counted: tuple[int, ...] = ()
        self.labels = 0
        self.way: tuple[int, ...] | None = None
        self.exact = False
        # Classes that the next round counts, for each choice among those used too often.
        self._next: dict[_Choice, list[int]] = {max: [], min: []}

    def tables(self) -> Tables:
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
        tables = counting(self.tables(), self.classes, counted)
        assert tables is not None
        labels = kernel.new_labels(_FIRST_CAPACITY)
        kernel.start(tables, labels)
        while True:
            status = kernel.run(tables, labels, limit, _STRIDE)
            stored = int(labels.counters[kernel.STORED])
            if status == kernel.EXHAUSTED:
                self._note(limit + 1, stored, counted)
                return True
            self._note(int(labels.counters[kernel.BEST]), stored, counted)
            if status == kernel.COMPLETE:
                return self._count_more(choice, labels)
            pause()
            if stored >= max_labels:
                return False
            if status == kernel.FULL:
                labels = kernel.grown(labels)

    def _note(self, bound: int, stored: int, counted: list[int]) -> None:
        if bound > self.bound:
            self.bound, self.counted, self.labels = bound, tuple(counted), stored

    def _count_more(self, choice: _Choice, labels: kernel.Labels) -> bool:
        """Count one of the classes that the optimal sequence has overused, if there is any."""
        path = []
        label = int(labels.counters[kernel.FINAL])
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
        more = [*self._next[choice], self.classes[choice(wrong)][0]]
        if counting(self.tables(), self.classes, more) is None:
            return False
        self._next[choice] = more
        return True

    def _too_early(
        self, choice: _Choice, c: int, item: Mover, labels: kernel.Labels, label: int
    ) -> bool:
        """Whether `item`, not of a counted class, left after `label` before it was ready."""
        size, items = self.classes[c]
        if size in self._next[choice]:
            return False
        times = int(labels.t[label]), int(labels.s[label])
        return starts_too_early(self.side.prefix, items[0], item, times, int(labels.k[label]))


def starts_too_early(
    prefix: list[int], first: Mover, item: Mover, times: tuple[int, int], run: int
) -> bool:
    """Return whether a transfer that suits the first item of a class comes too early for another.

    Parameters
    ----------
    prefix : list of int
        As in `HeadSide`.
    first, item : Mover
        The one whose readiness was looked at, and the one that is to leave.
    times : (int, int)
        When the link is free, and the idle time by then.
    run : int
        Operations that have run.
    """
    if item.ready >= run:
        return True
    free, idle = times
    begun = max(free, idle + prefix[first.ready + 1])
    return idle + prefix[item.ready + 1] > begun
