"""Residences placed one after the other, each where nothing that is placed already is in its way.

All simple heuristics are an order and a rule. For one residence, the placed residences that it
meets leave gaps between them, and all that lies above the highest of them is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import compiled
from offcert.core.placement import Placement, PlacementProblem

Integers = NDArray[np.int64]


class Rule(IntEnum):
    """Which free piece of memory is taken.

    `FIRST` takes the lowest one that is large enough, `BEST` the smallest one that is large enough,
    `EXACT` one of exactly the right size and else the first. What lies above everything counts as a
    piece that is larger than all others.
    """

    FIRST = 0
    BEST = 1
    EXACT = 2


class Arrays:
    """A problem's numbers, for `place_all`.

    Attributes
    ----------
    sizes, starts, ends : int64 array
        Bytes, and the axis of time; one entry a residence.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        residences = problem.residences
        self.sizes = np.array(problem.sizes, dtype=np.int64)
        self.starts = np.array([each.start for each in residences], dtype=np.int64)
        self.ends = np.array([each.end for each in residences], dtype=np.int64)

    def place(self, order: Sequence[int] | Integers, rule: Rule = Rule.FIRST) -> Integers:
        """Return the addresses that an order and a rule give, by residence."""
        given = np.asarray(order, dtype=np.int64)
        return place_all(self.sizes, self.starts, self.ends, given, int(rule))


def placed_in_order(
    problem: PlacementProblem, order: Sequence[int], rule: Rule = Rule.FIRST
) -> Placement:
    """Place all residences, one after the other.

    Parameters
    ----------
    problem : PlacementProblem
        Its capacity is not looked at.
    order : sequence of int
        Every residence once.
    rule : Rule
        Which free piece of memory is taken.
    """
    return Placement(int(each) for each in Arrays(problem).place(order, rule))


@compiled
def place_all(
    sizes: Integers, starts: Integers, ends: Integers, order: Integers, rule: int
) -> Integers:
    """Return the addresses that an order and a rule give; residences of no size are at 0."""
    addresses = np.zeros(len(sizes), dtype=np.int64)
    # Residences that are placed, by address.
    placed = np.empty(len(sizes), dtype=np.int64)
    count = 0
    for residence in order:
        size = sizes[residence]
        if size == 0:
            continue
        start, end = starts[residence], ends[residence]
        free = 0
        chosen, room = -1, np.int64(2**62)
        for place in range(count):
            other = placed[place]
            if starts[other] >= end or ends[other] <= start:
                continue
            gap = addresses[other] - free
            if gap >= size and (gap == size or chosen < 0 or (rule == 1 and gap < room)):
                # A gap that fits exactly ends every rule but the first, which has ended before.
                chosen, room = free, gap
                if rule == 0 or gap == size:
                    break
            free = max(free, addresses[other] + sizes[other])
        if chosen < 0:
            chosen = free
        addresses[residence] = chosen
        place = count
        while place > 0 and addresses[placed[place - 1]] > chosen:
            placed[place] = placed[place - 1]
            place -= 1
        placed[place] = residence
        count += 1
    return addresses
