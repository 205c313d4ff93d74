"""One side's least end, by counting tensors only where it matters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from offcert.formulations.atomic_heads import kernel
from offcert.formulations.atomic_heads.kernel import Ints, Tables
from offcert.formulations.atomic_heads.side import Item, Side

# Bits of the key's second word; the sign stays free.
_BITS = 62
# Required bytes are told apart up to this many units.
_FINEST = 1 << 20
# Labels expanded between two looks at the clock.
_STRIDE = 20_000
_FIRST_CAPACITY = 1 << 12


class SideSearch:
    """Raises the bound on the end of one side, round by round.

    Every round solves a relaxation in which the tensors of some classes may leave several times,
    and counts one more class in the next (decremental state-space relaxation), until no tensor
    leaves twice.

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

    def __init__(self, side: Side) -> None:
        self.side = side
        self.unit = max(1, -(-max(side.required) // _FINEST))
        self.classes = sorted(side.classes().items())
        self.bound = side.floor[0]
        self.counted: tuple[int, ...] = ()
        self.labels = 0
        self.way: tuple[int, ...] | None = None
        self.exact = False
        self._next: list[int] = []

    def improve(self, limit: int, max_labels: int, pause: Callable[[], None]) -> None:
        """Raise `bound`, at most to one more than `limit`, with at most `max_labels` a round."""
        while self.bound <= limit and not self.exact:
            if not self._round(limit, max_labels, pause):
                return

    def _round(self, limit: int, max_labels: int, pause: Callable[[], None]) -> bool:
        """Solve the relaxation that counts `_next`; return whether another round may help."""
        tables = self._tables()
        labels = kernel.new_labels(_FIRST_CAPACITY)
        kernel.start(tables, labels)
        while True:
            status = kernel.run(tables, labels, limit, _STRIDE)
            stored = int(labels.counters[kernel.STORED])
            if status == kernel.EXHAUSTED:
                self._note(limit + 1, stored)
                return True
            self._note(int(labels.counters[kernel.BEST]), stored)
            if status == kernel.COMPLETE:
                return self._count_more(labels)
            pause()
            if stored >= max_labels:
                return False
            if status == kernel.FULL:
                labels = kernel.grown(labels)

    def _note(self, bound: int, stored: int) -> None:
        if bound > self.bound:
            self.bound, self.counted, self.labels = bound, tuple(self._next), stored

    def _count_more(self, labels: kernel.Labels) -> bool:
        """Count the class that the optimal sequence has overused most, if there is any."""
        path = []
        label = int(labels.counters[kernel.FINAL])
        while labels.parent[label] >= 0:
            path.append((int(labels.action[label]), int(labels.parent[label])))
            label = int(labels.parent[label])
        used = [0] * len(self.classes)
        wrong = [0] * len(self.classes)
        gaps = []
        for c, label in reversed(path):
            items = self.classes[c][1]
            if used[c] >= len(items) or self._too_early(c, items[used[c]], labels, label):
                wrong[c] += 1
            else:
                gaps.append(items[used[c]].gap)
            used[c] += 1
        worst = max(range(len(wrong)), key=wrong.__getitem__, default=-1)
        if worst < 0 or wrong[worst] == 0:
            self.way, self.exact = tuple(gaps), True
            return False
        bits = sum(self._bits(size) for size in self._next)
        size = self.classes[worst][0]
        if bits + self._bits(size) > _BITS:
            return False
        self._next.append(size)
        return True

    def _too_early(self, c: int, item: Item, labels: kernel.Labels, label: int) -> bool:
        """Whether a class that is not counted left after `label` when `item` was not ready yet."""
        size, items = self.classes[c]
        if size in self._next:
            return False
        if item.ready >= labels.k[label]:
            return True
        idle, prefix = int(labels.s[label]), self.side.prefix
        begun = max(int(labels.t[label]), idle + prefix[items[0].ready + 1])
        return idle + prefix[item.ready + 1] > begun

    def _bits(self, size: int) -> int:
        return len(self.side.classes()[size]).bit_length()

    def _tables(self) -> Tables:
        side, unit = self.side, self.unit
        count = len(side.prefix) - 1
        rounded = {size: -(-size // unit) * unit for size, _ in self.classes}
        most = np.zeros(count + 1, np.int64)
        for item in side.items:
            most[item.ready + 1 :] += rounded[item.size]
        shift, mask, place = {}, {}, 0
        for size in self._next:
            shift[size], mask[size] = place, (1 << self._bits(size)) - 1
            place += self._bits(size)
        sizes = [size for size, _ in self.classes]
        return Tables(
            prefix=_array(side.prefix),
            required=_array(side.required),
            floor=_array(side.floor),
            most=most,
            size=_array([rounded[size] for size in sizes]),
            time=_array([items[0].time for _, items in self.classes]),
            ready=_ready([items for _, items in self.classes]),
            amount=_array([len(items) for _, items in self.classes]),
            shift=_array([shift.get(size, 0) for size in sizes]),
            mask=_array([mask.get(size, 0) for size in sizes]),
            rate=_array(side.rate),
            unit=unit,
        )


def _array(values: object) -> Ints:
    return np.array(values, dtype=np.int64)


def _ready(classes: list[list[Item]]) -> Ints:
    table = np.zeros((len(classes), max(map(len, classes), default=1)), np.int64)
    for row, items in zip(table, classes, strict=True):
        row[: len(items)] = [item.ready for item in items]
    return table
