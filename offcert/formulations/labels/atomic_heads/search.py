"""One side's least end, by counting tensors only where it matters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from offcert.core.compiled import IntArray
from offcert.formulations.labels.atomic_heads import kernel
from offcert.formulations.labels.atomic_heads.kernel import SideTables
from offcert.formulations.labels.atomic_heads.side import HeadSide, Movable, still_missing, ways

# Bits of each of the key's two words that are used; the sign stays free. By definition.
_BITS = 62
# Levels up to which `completion` tells apart the amounts that have left. Arbitrary.
MOST_LEVELS = 1 << 17

Classes = Sequence[tuple[int, list[Movable]]]


def uncounted(side: HeadSide, classes: Classes, unit: int) -> SideTables:
    """Return a side as arrays, with no class counted, and all ways to its end.

    Parameters
    ----------
    side : HeadSide
        Of any pivot.
    classes : sequence of (int, list of Movable)
        Its items by size, each list in the order of readiness.
    unit : int
        To whose multiples sizes are rounded up.
    """
    size = [-(-number // unit) for number, _ in classes]
    time = _array([items[0].time for _, items in classes])
    ready = _ready([items for _, items in classes])
    levels = -(-max(side.required) // unit)
    grain = max(1, -(-levels // MOST_LEVELS))
    prefix, required, floor, rate = map(_array, (side.prefix, side.required, side.floor, side.rate))
    coarse = [-(-number // grain) for number in size]
    first, link, idle = ways(
        prefix,
        floor,
        _run(side.required, grain * unit),
        still_missing(prefix, required, floor, rate, grain * unit, -(-levels // grain)),
        _most(side, classes, coarse),
        _array(coarse),
        time,
        ready[:, 0].copy(),
    )
    nothing = np.zeros(len(classes), np.int64)
    return SideTables(
        prefix=prefix,
        required=required,
        floor=floor,
        most=_most(side, classes, size),
        size=_array(size),
        time=time,
        ready=ready,
        amount=_array([len(items) for _, items in classes]),
        word=nothing,
        shift=nothing,
        mask=nothing,
        rate=rate,
        unit=unit,
        grain=grain,
        first=first,
        link=link,
        idle=idle,
    )


def counting(tables: SideTables, classes: Classes, counted: Sequence[int]) -> SideTables | None:
    """Return the arrays with the classes of these sizes counted; None if the key has no room."""
    places = {}
    free = [0, 0]
    amounts = {size: len(items) for size, items in classes}
    for size in counted:
        bits = amounts[size].bit_length()
        emptier = 0 if free[0] <= free[1] else 1
        if free[emptier] + bits > _BITS:
            return None
        places[size] = (emptier, free[emptier], (1 << bits) - 1)
        free[emptier] += bits
    columns = _array([places.get(size, (0, 0, 0)) for size, _ in classes]).reshape(-1, 3)
    word, shift, mask = (column.copy() for column in columns.T)
    return tables._replace(word=word, shift=shift, mask=mask)


def _most(side: HeadSide, classes: Classes, sizes: Sequence[int]) -> IntArray:
    """Return, for each number of operations run, all of `sizes` that is ready then."""
    most = np.zeros(len(side.prefix), np.int64)
    for (_, items), size in zip(classes, sizes, strict=True):
        for item in items:
            most[item.ready + 1 :] += size
    return most


def _run(required: Sequence[int], grid: int) -> IntArray:
    """Return how many operations can run, for each number of levels of `grid` bytes that left."""
    reach = np.maximum.accumulate(_array(required))
    amounts = grid * np.arange(-(-int(reach[-1]) // grid) + 1)
    return np.searchsorted(reach[:-1], amounts, side="right").astype(np.int64)


def _ready(classes: Sequence[list[Movable]]) -> IntArray:
    table = np.zeros((len(classes), max(map(len, classes), default=1)), np.int64)
    for row, items in zip(table, classes, strict=True):
        row[: len(items)] = [item.ready for item in items]
    return table


def _array(values: object) -> IntArray:
    return np.array(values, dtype=np.int64)


# Units up to which required bytes are told apart. Arbitrary.
_FINEST = 1 << 20
# Labels that are expanded between two looks at the clock, and labels that a store has room for at
# first. Arbitrary.
STRIDE = 20_000
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
        tables = counting(self.tables(), self.classes, counted)
        assert tables is not None
        labels = kernel.new_labels(_FIRST_CAPACITY)
        kernel.start(tables, labels)
        while True:
            status = kernel.run(tables, labels, limit, STRIDE)
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
        self, choice: _Choice, c: int, item: Movable, labels: kernel.Labels, label: int
    ) -> bool:
        """Whether `item`, not of a counted class, left after `label` before it was ready."""
        size, items = self.classes[c]
        if size in self._next[choice]:
            return False
        times = int(labels.t[label]), int(labels.s[label])
        return starts_too_early(self.side.prefix, items[0], item, times, int(labels.k[label]))


def starts_too_early(
    prefix: list[int], first: Movable, item: Movable, times: tuple[int, int], run: int
) -> bool:
    """Return whether a transfer that suits the first item of a class comes too early for another.

    Parameters
    ----------
    prefix : list of int
        As in `HeadSide`.
    first, item : Movable
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
