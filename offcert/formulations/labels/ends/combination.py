"""The best combination of a head and a tail: what is wrong with it, and what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from offcert.formulations.labels.ends import kernel
from offcert.formulations.labels.ends.level import Level
from offcert.formulations.labels.ends.orders import Orders
from offcert.formulations.labels.ends.side import HeadSide, Movable, starts_too_early


@dataclass(frozen=True)
class Combination:
    """Labels of both sides that match, and the length of such a schedule."""

    length: int
    labels: tuple[int, int]


def best_combination(levels: tuple[Level, Level]) -> Combination:
    """Return the shortest one; `kernel.NEVER` long if nothing matches."""
    one, two = levels
    lengths = one.ends + one.partners.ends
    if lengths.min(initial=kernel.NEVER) >= kernel.NEVER:
        return Combination(kernel.NEVER, (-1, -1))
    place = int(lengths.argmin())
    # A label of the other side with which the length is the same, if possible by the same key.
    others = np.flatnonzero(two.ends + two.partners.ends == lengths[place])
    shared = one.partners.w[place], one.partners.code[place]
    alike = (two.partners.w[others] == shared[0]) & (two.partners.code[others] == shared[1])
    other = others[int(alike.argmax())]
    return Combination(int(lengths[place]), (int(one.chosen[place]), int(two.chosen[other])))


@dataclass(frozen=True)
class MatchedWay:
    """The transfers of one side that lead to a label, by class."""

    side: HeadSide
    classes: list[tuple[int, list[Movable]]]
    level: Level
    label: int

    @cached_property
    def transfers(self) -> list[tuple[int, int]]:
        """Class, and label before it."""
        return self.level.path(self.label)

    def used(self) -> list[int]:
        """Return how many of each class leave."""
        used = [0] * len(self.classes)
        for c, _ in self.transfers:
            used[c] += 1
        return used

    def early(self) -> list[int]:
        """Return how many of each class leave before they are ready.

        Only of a class that is not counted can they: its first tensor is looked at in their place.
        """
        used, early = ([0] * len(self.classes) for _ in range(2))
        for c, label in self.transfers:
            items = self.classes[c][1]
            if used[c] < len(items) and self.level.tables.radix[c] == 0:
                early[c] += self._is_early(items[0], items[used[c]], label)
            used[c] += 1
        return early

    def _is_early(self, first: Movable, item: Movable, label: int) -> bool:
        tables, labels = self.level.tables, self.level.labels
        most = np.maximum.accumulate(tables.required[:-1])
        run = int(np.searchsorted(most, tables.unit * labels.w[label], side="right"))
        times = int(labels.t[label]), int(labels.s[label])
        return starts_too_early(self.side.prefix, first, item, times, run)

    def gaps(self) -> list[int]:
        """Return the gaps in the order of their transfers; of no class more than there are."""
        left = [iter(items) for _, items in self.classes]
        items = (next(left[c], None) for c, _ in self.transfers)
        return [item.gap for item in items if item is not None]


def misused(ways: Sequence[MatchedWay], counted: Sequence[int]) -> dict[int, Fraction]:
    """Return the classes, not counted, that two ways misuse together, and how urgently.

    Urgent is how often a class is misused, divided by its size: sums are made to fit with small
    tensors.
    """
    used = [way.used() for way in ways]
    early = [way.early() for way in ways]
    wrong = {}
    for c in set(range(len(used[0]))) - set(counted):
        amount = abs(used[0][c] - used[1][c])
        for way, times, too_early in zip(ways, used, early, strict=True):
            amount += max(0, times[c] - len(way.classes[c][1])) + too_early[c]
        if amount > 0:
            wrong[c] = Fraction(amount, ways[0].classes[c][0])
    return wrong


def as_orders(ways: Sequence[MatchedWay], length: int) -> Orders:
    """Return a head and a tail as orders; what only one side moves returns first or leaves last."""
    offloads, prefetches = ways[0].gaps(), ways[1].gaps()[::-1]
    late = [gap for gap in prefetches if gap not in offloads]
    early = [gap for gap in offloads if gap not in prefetches]
    return Orders((*offloads, *late), (*early, *prefetches), length)
