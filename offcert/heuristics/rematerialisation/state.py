"""A network's items for the executor, and the runs that have to come before a first run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, inner
from offcert.core.network import Network
from offcert.core.states import StatesUsed, readers_of, states_of

Lists = tuple[IntArray, IntArray]
Rows = Sequence[Sequence[int]]
# Rows of `ExecutorArrays.steps`.
DURATION, WORKSPACE, LEAN, REPEATABLE = range(4)
# Rows of `ExecutorArrays.items`.
SIZE, MAKER, VALUE, LEVEL, LAST, SAFE = range(6)
# The mark of a computation without a lean workspace. By definition.
NONE = -1


class ExecutorArrays(NamedTuple):
    """A network, by items."""

    # Shape (4, computations). ``DURATION``, ``WORKSPACE``, ``LEAN`` (-1 if discarding spares
    # nothing), ``REPEATABLE``.
    steps: IntArray
    # Shape (6, items). ``SIZE``; ``MAKER``, -1 at the start; ``VALUE`` and ``LEVEL``: after how
    # many changes; ``LAST``, the last computation for whose first run it may be of any use;
    # ``SAFE``, whether it can be made again once it is given up.
    items: IntArray
    # Lists of lists: where each begins, and all members. By computation, the items
    # that it needs, writes, and changes (before and after, in turn); by item, who reads it.
    needs: Lists
    makes: Lists
    turns: Lists
    readers: Lists
    # Ticks of the first runs before each computation; one more than there are computations.
    before: IntArray

    def discarded(self, computation: int, kept: set[int]) -> tuple[int, ...]:
        """Return the values that a run discards if it keeps these items."""
        begin, members = self.makes
        items = members[begin[computation] : begin[computation + 1]]
        return tuple(sorted(int(self.items[VALUE, item]) for item in items if item not in kept))


def executor_arrays(network: Network) -> ExecutorArrays:
    """Return the arrays of a network."""
    states, used = states_of(network)
    readers = readers_of(states, used)
    rows = [(each.size, each.maker, each.value, each.level) for each in states]
    items = np.array(rows, np.int64).reshape(-1, 4).T
    last, safe = _last_uses(network, readers, used), _safe(network, len(states), used)
    return ExecutorArrays(
        np.array(
            [
                [each.duration, each.workspace, _lean(network, index), each.repeatable]
                for index, each in enumerate(network.computations)
            ],
            np.int64,
        ).T.copy(),
        np.vstack([items, last, safe]).astype(np.int64),
        _lists([each.needs for each in used]),
        _lists([each.makes for each in used]),
        _lists([tuple(chain.from_iterable(each.turns)) for each in used]),
        _lists(readers),
        np.array(network.cumulative, np.int64),
    )


def _lean(network: Network, index: int) -> int:
    lean = network.computations[index].lean
    return NONE if lean is None else lean


def _last_uses(network: Network, readers: Rows, used: Sequence[StatesUsed]) -> list[int]:
    """Return the last computation for which each item is of use, read by it or to run another."""
    last = [max(row, default=-1) for row in readers]
    for computation, each in zip(reversed(network.computations), reversed(used), strict=True):
        if computation.repeatable:
            until = max((last[number] for number in each.leaves), default=-1)
            for number in each.needs:
                last[number] = max(last[number], until)
    return last


def _safe(network: Network, count: int, used: Sequence[StatesUsed]) -> list[bool]:
    """Return which items can be made again: nothing that this takes is lost for good."""
    safe, lost = [False] * count, [False] * count
    for computation, each in zip(network.computations, used, strict=True):
        repeats = computation.repeatable and not any(lost[number] for number in each.needs)
        for number in each.makes:
            safe[number] = repeats
        for old, new in each.turns:
            safe[new] = repeats and safe[old]
            # What was changed and cannot be made again is gone as it was.
            lost[old] = not safe[old]
    return safe


def _lists(rows: Rows) -> Lists:
    begin = np.zeros(len(rows) + 1, np.int64)
    begin[1:] = np.cumsum([len(row) for row in rows])
    members = np.array([number for row in rows for number in row] or [0], np.int64)
    return begin, members


# Entries of the totals: bytes there, ticks and runs so far, items in the list of those there. By
# definition.
LIVE, TIME, RUNS, LISTED = 0, 1, 2, 3
# Rows of the items' state: whether there; how many runs of the stage need it; its next reader's
# place in the list; what it took to make it when it was given up; a mark of searches; its place in
# the list of what is there; and that list.
THERE, WANTED, NEXT, COST, SEEN, PLACE, LIST = range(7)


@inner
def making_cost(item: int, net: ExecutorArrays, held: IntArray) -> int:
    """Return the ticks to make an item again, about."""
    maker = net.items[MAKER, item]
    if maker < 0:
        return 0
    begin, members = net.needs
    total = net.steps[DURATION, maker]
    for place in range(begin[maker], begin[maker + 1]):
        if not held[THERE, members[place]]:
            total += held[COST, members[place]]
    return min(total, 2**40)


@inner
def enlist(item: int, held: IntArray, totals: IntArray) -> None:
    """Note that an item is there."""
    held[THERE, item] = 1
    held[PLACE, item] = totals[LISTED]
    held[LIST, totals[LISTED]] = item
    totals[LISTED] += 1


@inner
def strike(item: int, held: IntArray, totals: IntArray) -> None:
    """Note that an item is not there any more; the last one of the list takes its place."""
    totals[LISTED] -= 1
    other = held[LIST, totals[LISTED]]
    held[LIST, held[PLACE, item]] = other
    held[PLACE, other] = held[PLACE, item]
    held[THERE, item] = 0


@inner
def give_up(item: int, net: ExecutorArrays, state: Any) -> None:
    """Free an item, and remember what it takes to make it again."""
    held, there, totals = state
    held[COST, item] = making_cost(item, net, held)
    strike(item, held, totals)
    there[net.items[VALUE, item]] = -1
    totals[LIVE] -= net.items[SIZE, item]


@inner
def look(
    stage: int,
    net: ExecutorArrays,
    held: IntArray,
    there: IntArray,
    marks: IntArray,
    redo: IntArray,
    stack: IntArray,
) -> bool:
    """Mark computations to run before a stage's first run; return whether that is possible."""
    steps, items = net.steps, net.items
    begin, members = net.needs
    marks[:] = 0
    redo[:] = 0
    held[SEEN, :] = 0
    held[WANTED, :] = 0
    size = 0
    for place in range(begin[stage], begin[stage + 1]):
        stack[size] = members[place]
        size += 1
    while size:
        size -= 1
        item = stack[size]
        if held[SEEN, item]:
            continue
        held[SEEN, item] = 1
        value = items[VALUE, item]
        present = there[value]
        if present == item and not redo[value]:
            continue
        if present >= 0 and not redo[value] and items[LEVEL, present] > items[LEVEL, item]:
            # To make it as it was before means to lose what has been made of it since.
            if not items[SAFE, present]:
                return False
            redo[value] = 1
            if held[SEEN, present]:
                held[SEEN, present] = 0
                stack[size] = present
                size += 1
        maker = items[MAKER, item]
        if maker < 0 or maker >= stage or not steps[REPEATABLE, maker]:
            return False
        if not marks[maker]:
            marks[maker] = 1
            for place in range(begin[maker], begin[maker + 1]):
                if not held[SEEN, members[place]]:
                    stack[size] = members[place]
                    size += 1
    marks[stage] = 1
    for run in range(stage + 1):
        if marks[run]:
            for place in range(begin[run], begin[run + 1]):
                held[WANTED, members[place]] += 1
    held[SEEN, :] = 0
    return True
