"""What the executor keeps of a network's items, and what has to run before a first run."""

from __future__ import annotations

from typing import Any

from offcert.core.compiled import inner
from offcert.heuristics.rematerialisation.arrays import (
    DURATION,
    LEVEL,
    MAKER,
    REPEATABLE,
    SAFE,
    SIZE,
    VALUE,
    Integers,
)

# Members of `ExecutorArrays.network_arrays`.
STEPS, ITEMS, NEEDS, MAKES, TURNS, READERS, BEFORE = range(7)
# Entries of the totals: bytes there, ticks and runs so far, items in the list of what is there.
LIVE, TIME, RUNS, LISTED = 0, 1, 2, 3
# Rows of the items' state: whether there; how many runs of the stage need it; its next reader's
# place in the list; what it took to make it when it was given up; a mark of searches; its place in
# the list of what is there; and that list.
THERE, WANTED, NEXT, COST, SEEN, PLACE, LIST = range(7)


@inner
def making_cost(item: int, net: Any, held: Integers) -> int:
    """Return the ticks to make an item again, about."""
    maker = net[ITEMS][MAKER, item]
    if maker < 0:
        return 0
    begin, members = net[NEEDS]
    total = net[STEPS][DURATION, maker]
    for place in range(begin[maker], begin[maker + 1]):
        if not held[THERE, members[place]]:
            total += held[COST, members[place]]
    return min(total, 2**40)


@inner
def enlist(item: int, held: Integers, totals: Integers) -> None:
    """Note that an item is there."""
    held[THERE, item] = 1
    held[PLACE, item] = totals[LISTED]
    held[LIST, totals[LISTED]] = item
    totals[LISTED] += 1


@inner
def strike(item: int, held: Integers, totals: Integers) -> None:
    """Note that an item is not there any more; the last one of the list takes its place."""
    totals[LISTED] -= 1
    other = held[LIST, totals[LISTED]]
    held[LIST, held[PLACE, item]] = other
    held[PLACE, other] = held[PLACE, item]
    held[THERE, item] = 0


@inner
def give_up(item: int, net: Any, held: Integers, there: Integers, totals: Integers) -> None:
    """Free an item, and remember what it takes to make it again."""
    held[COST, item] = making_cost(item, net, held)
    strike(item, held, totals)
    there[net[ITEMS][VALUE, item]] = -1
    totals[LIVE] -= net[ITEMS][SIZE, item]


@inner
def look(
    stage: int,
    net: Any,
    held: Integers,
    there: Integers,
    marks: Integers,
    redo: Integers,
    stack: Integers,
) -> bool:
    """Mark what has to run before a stage's first run; return whether that is possible."""
    steps, items = net[STEPS], net[ITEMS]
    begin, members = net[NEEDS]
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
