"""A placement problem as boxes over sections: what every exact method starts from.

Only who meets whom matters, not for how long. So the axis of time is reduced to the largest sets of
residences that are live together (the maximal cliques of an interval graph, in order of time): two
residences meet if and only if they share such a *section*. Sizes are counted in the largest unit
that divides all of them; every address can be taken to be a multiple of it, since pushing all boxes
down makes every address a sum of sizes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cached_property

import numpy as np

from offcert.core.compiled import IntArray
from offcert.questions.placement.problem import Placement, PlacementProblem


class Sections:
    """A problem's boxes, ordered by the section in which they begin, longer ones first.

    Residences of no size are left out.

    Attributes
    ----------
    residence : tuple of int
        Number of the residence of each box.
    unit : int
        Bytes that divide every size.
    size : int64 array
        In units.
    first, last : int64 array
        Each box is live in the sections from `first` to just before `last`.
    count : int
        How many sections there are.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        sizes, rows = problem.sizes, problem.residences
        chosen = [index for index, size in enumerate(sizes) if size > 0]
        moments = largest_sets(
            [rows[index].start for index in chosen], [rows[index].end for index in chosen]
        )
        first = {index: bisect_left(moments, rows[index].start) for index in chosen}
        last = {index: bisect_left(moments, rows[index].end) for index in chosen}
        self.residence = tuple(sorted(chosen, key=lambda index: (first[index], -last[index])))
        self.unit = math.gcd(*(sizes[index] for index in chosen)) or 1
        self.size = np.array([sizes[index] // self.unit for index in self.residence], np.int64)
        self.first = np.array([first[index] for index in self.residence], np.int64)
        self.last = np.array([last[index] for index in self.residence], np.int64)
        self.count = len(moments)
        self._problem = problem

    def __len__(self) -> int:
        return len(self.residence)

    @cached_property
    def index(self) -> IntArray:
        """The first box that begins in a section or later, for every section and after the last."""
        return np.searchsorted(self.first, np.arange(self.count + 1)).astype(np.int64)

    @cached_property
    def loads(self) -> IntArray:
        """Units that are live in each section."""
        change = np.zeros(self.count + 1, np.int64)
        np.add.at(change, self.first, self.size)
        np.add.at(change, self.last, -self.size)
        return np.cumsum(change)[:-1]

    def placement(self, addresses: IntArray | list[int]) -> Placement:
        """Return the placement that puts boxes at addresses in units."""
        found = [0] * len(self._problem.residences)
        for index, address in zip(self.residence, addresses, strict=True):
            found[index] = int(address) * self.unit
        return Placement(found)

    def addresses(self, placement: Placement) -> list[int]:
        """Return the addresses of boxes, in units, rounded down."""
        return [placement.addresses[index] // self.unit for index in self.residence]


def largest_sets(starts: list[int], ends: list[int]) -> list[int]:
    """Return moments at which the largest sets of intervals are live: one moment a set.

    A set is largest where an interval begins and the next thing that happens is that one ends.
    """
    beginning, ending = set(starts), set(ends)
    moments: list[int] = []
    latest = None
    for moment in sorted(beginning | ending):
        if moment in ending and latest is not None:
            moments.append(latest)
            latest = None
        if moment in beginning:
            latest = moment
    return moments
