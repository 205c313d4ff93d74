"""Allocators that know nothing of the future: residences are placed in order of time.

What a caching allocator can hope for at best when it splits and joins blocks freely (the survey of
Wilson, Johnstone, Neely and Boles, "Dynamic storage allocation", 1995, treats both).

So does moDNN's memory pool (Chen et al., "moDNN: Memory optimal DNN training on GPUs", 2018, §3.3):
a list of free and taken blocks. A request takes the first free block that has exactly its size, as
many tensors of a network are equally large, and else the first one that is large enough. Where none
is, moDNN makes room by offloading neighbours, or by *defragmentation*: all data leave, and what is
needed returns to the beginning of the pool. Both change the schedule. For a schedule that is fixed,
`modnn_pool` says which pool the requests take without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from offcert.core.compiled import IntArray, compiled
from offcert.questions.placement.problem import Placement, PlacementProblem


class Rule(IntEnum):
    """The rule that picks one of the free pieces of memory.

    `FIRST` takes the lowest one that is large enough, `BEST` the smallest one that is large enough,
    `EXACT` one of exactly the right size and else the first. What lies above everything counts as a
    piece that is larger than all others.
    """

    FIRST = 0
    BEST = 1
    EXACT = 2


def placed_in_order(
    problem: PlacementProblem, order: Sequence[int], rule: Rule = Rule.FIRST
) -> Placement:
    """Place all residences, one after the other."""
    columns = (
        problem.sizes,
        [each.start for each in problem.residences],
        [each.end for each in problem.residences],
        order,
    )
    sizes, starts, ends, given = (np.array(each, dtype=np.int64) for each in columns)
    addresses = place_all(sizes, starts, ends, given, int(rule))
    return Placement(int(each) for each in addresses)


@compiled
def place_all(
    sizes: IntArray, starts: IntArray, ends: IntArray, order: IntArray, rule: int
) -> IntArray:
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


def greedy_by_size(problem: PlacementProblem) -> Placement:
    """Place the largest residences first."""
    return _by(problem, problem.sizes)


def greedy_by_area(problem: PlacementProblem) -> Placement:
    """Place the residences that take most memory for most time first: size times lifetime."""
    lasting = (each.end - each.start for each in problem.residences)
    areas = [size * time for size, time in zip(problem.sizes, lasting, strict=True)]
    return _by(problem, areas, problem.sizes)


def _by(problem: PlacementProblem, *keys: Sequence[int]) -> Placement:
    """Place residences with large keys first; ties keep the order of the list."""
    ranked = sorted(
        range(len(problem.residences)), key=lambda index: tuple(-key[index] for key in keys)
    )
    return placed_in_order(problem, ranked)


def first_fit(problem: PlacementProblem) -> Placement:
    """Place residences as they begin, each at the lowest address at which it fits."""
    return placed_in_order(problem, in_time(problem), Rule.FIRST)


def best_fit(problem: PlacementProblem) -> Placement:
    """Place residences as they begin, each in the smallest free piece in which it fits."""
    return placed_in_order(problem, in_time(problem), Rule.BEST)


def in_time(problem: PlacementProblem) -> list[int]:
    """Return residences as they begin; of those that begin together, as they are listed."""
    residences = problem.residences
    return sorted(range(len(residences)), key=lambda index: residences[index].start)


def modnn_pool(problem: PlacementProblem) -> Placement:
    """Place residences as they begin: in a free block of exactly their size, or the first one."""
    return placed_in_order(problem, in_time(problem), Rule.EXACT)
