"""The compiled executor: runs a network within a memory limit, and gives up what seems cheapest.

Before each first run, everything that it takes and that is not there is made again, in the
network's order. Where memory lacks, items are given up by their score: large ones, whose next
reader is far away and which are cheap to make again, first. What cannot be made again stays as long
as it may be of use; what the present stage still needs goes last, and is then made once more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import compiled, inner
from offcert.heuristics.rematerialisation.arrays import (
    DURATION,
    LAST,
    LEAN,
    LEVEL,
    MAKER,
    NONE,
    REPEATABLE,
    SAFE,
    SIZE,
    VALUE,
    WORKSPACE,
    Integers,
)

Floats = NDArray[np.float64]
Lists = tuple[Integers, Integers]
# What `ExecutorArrays.network_arrays` returns; its members by position.
NetworkArrays = tuple[Integers, Integers, Lists, Lists, Lists, Lists, Integers]
_STEPS, _ITEMS, _NEEDS, _MAKES, _TURNS, _READERS, _BEFORE = range(7)

# How often the needs of one stage are looked at anew, at most.
_MOST_LOOKS = 200
# Ways to end.
DONE, NO_ROOM, TOO_LONG, LOST = 0, 1, 2, 3
# Entries of the totals: bytes there, ticks and runs so far.
_LIVE, _TIME, _RUNS = 0, 1, 2
# Rows of the items' state: whether there; how many runs of the stage need it; its next reader's
# place in the list; what it took to make it when it was given up; a mark of searches.
_THERE, _WANTED, _NEXT, _COST, _SEEN = range(5)
# What a run writes beyond so many items it keeps: there are no bits for them.
BITS = 60
# That mark, of what the run at hand uses.
_IN_USE = 2


@inner
def _cost(item: int, net: Any, held: Integers) -> int:
    """Return the ticks to make an item again, about."""
    maker = net[_ITEMS][MAKER, item]
    if maker < 0:
        return 0
    begin, members = net[_NEEDS]
    total = net[_STEPS][DURATION, maker]
    for place in range(begin[maker], begin[maker + 1]):
        if not held[_THERE, members[place]]:
            total += held[_COST, members[place]]
    return min(total, 2**40)


@inner
def _give_up(item: int, net: Any, held: Integers, there: Integers, totals: Integers) -> None:
    """Free an item, and remember what it takes to make it again."""
    held[_COST, item] = _cost(item, net, held)
    held[_THERE, item] = 0
    there[net[_ITEMS][VALUE, item]] = -1
    totals[_LIVE] -= net[_ITEMS][SIZE, item]


@inner
def _score(item: int, stage: int, net: Any, held: Integers, rules: Any) -> float:
    """Return how good it is to give an item up."""
    (begin, members), before = net[_READERS], net[_BEFORE]
    weights, powers, _ = rules
    end = begin[item + 1]
    place = max(begin[item], held[_NEXT, item])
    while place < end and members[place] <= stage:
        place += 1
    held[_NEXT, item] = place
    # What nobody reads directly serves only to make other things again.
    reader = members[place] if place < end else net[_ITEMS][LAST, item]
    far = before[max(reader, stage)] - before[stage] + 1.0
    if place == end:
        far *= 4.0
    return (
        powers[0] * math.log(1.0 + net[_ITEMS][SIZE, item])
        + powers[1] * math.log(far)
        - powers[2] * math.log(1.0 + _cost(item, net, held))
        + weights[item]
    )


@inner
def _free(
    room: int,
    stage: int,
    wanted_too: bool,
    net: Any,
    held: Integers,
    there: Integers,
    totals: Integers,
    rules: Any,
) -> int:
    """Give items up until there is room; return 1, 2 if the stage needs one of them, or 0."""
    items, outcome = net[_ITEMS], 1
    while totals[_LIVE] + room > rules[2]:
        best, value = -1, -np.inf
        for item in range(items.shape[1]):
            if not held[_THERE, item] or not items[SAFE, item] or not items[SIZE, item]:
                continue
            if held[_SEEN, item] == _IN_USE or (held[_WANTED, item] and not wanted_too):
                continue
            score = _score(item, stage, net, held, rules)
            if held[_WANTED, item]:
                score -= 1e6
            if score > value:
                best, value = item, score
        if best < 0:
            return 0
        if held[_WANTED, best]:
            outcome = 2
        _give_up(best, net, held, there, totals)
    return outcome


@inner
def _look(
    stage: int,
    net: Any,
    held: Integers,
    there: Integers,
    marks: Integers,
    redo: Integers,
    stack: Integers,
) -> bool:
    """Mark what has to run before a stage's first run; return whether that is possible."""
    steps, items = net[_STEPS], net[_ITEMS]
    begin, members = net[_NEEDS]
    marks[:] = 0
    redo[:] = 0
    held[_SEEN, :] = 0
    held[_WANTED, :] = 0
    size = 0
    for place in range(begin[stage], begin[stage + 1]):
        stack[size] = members[place]
        size += 1
    while size:
        size -= 1
        item = stack[size]
        if held[_SEEN, item]:
            continue
        held[_SEEN, item] = 1
        value = items[VALUE, item]
        present = there[value]
        if present == item and not redo[value]:
            continue
        if present >= 0 and not redo[value] and items[LEVEL, present] > items[LEVEL, item]:
            # To make it as it was before means to lose what has been made of it since.
            if not items[SAFE, present]:
                return False
            redo[value] = 1
            if held[_SEEN, present]:
                held[_SEEN, present] = 0
                stack[size] = present
                size += 1
        maker = items[MAKER, item]
        if maker < 0 or maker >= stage or not steps[REPEATABLE, maker]:
            return False
        if not marks[maker]:
            marks[maker] = 1
            for place in range(begin[maker], begin[maker + 1]):
                if not held[_SEEN, members[place]]:
                    stack[size] = members[place]
                    size += 1
    marks[stage] = 1
    for run in range(stage + 1):
        if marks[run]:
            for place in range(begin[run], begin[run + 1]):
                held[_WANTED, members[place]] += 1
    held[_SEEN, :] = 0
    return True


@inner
def _soon(item: int, run: int, stage: int, net: Any, held: Integers) -> bool:
    """Whether what a run writes is needed in this stage, or by what follows the first run."""
    if held[_WANTED, item] > 0:
        return True
    begin, members = net[_READERS]
    if run == stage:
        for place in range(begin[item], begin[item + 1]):
            if net[_STEPS][REPEATABLE, members[place]]:
                return True
    return False


@inner
def _make_room(
    run: int,
    stage: int,
    net: Any,
    held: Integers,
    there: Integers,
    totals: Integers,
    rules: Any,
) -> tuple[int, int]:
    """Return what `_free` says, and which of the items that it writes a run keeps, bit by bit."""
    steps, items = net[_STEPS], net[_ITEMS]
    begin, members = net[_MAKES]
    first, last = begin[run], begin[run + 1]
    whole, part, some = steps[WORKSPACE, run], steps[LEAN, run], 0
    for place in range(first, last):
        item = members[place]
        whole += items[SIZE, item]
        beyond = place - first >= BITS
        if beyond or _soon(item, run, stage, net, held):
            some |= 0 if beyond else 1 << (place - first)
            part += items[SIZE, item]
    everything = (1 << min(last - first, BITS)) - 1
    leaner = steps[LEAN, run] != NONE and some != everything and part < whole
    for wanted_too in (False, True):
        result = _free(whole, stage, wanted_too, net, held, there, totals, rules)
        if result:
            return result, everything
        if leaner:
            result = _free(part, stage, wanted_too, net, held, there, totals, rules)
            if result:
                return result, some
    return 0, 0


@inner
def _run(
    run: int,
    stage: int,
    net: Any,
    held: Integers,
    there: Integers,
    totals: Integers,
    rules: Any,
    written: Lists,
) -> int:
    """Run a computation; return 1, 2 if the stage has to be looked at anew, or 0 without room."""
    items, (order, kept) = net[_ITEMS], written
    reads, read = net[_NEEDS]
    begin, members = net[_MAKES]
    changes, changed = net[_TURNS]
    for place in range(reads[run], reads[run + 1]):
        held[_SEEN, read[place]] = _IN_USE
    # What is written again takes the place of what was there.
    for place in range(begin[run], begin[run + 1]):
        old = there[items[VALUE, members[place]]]
        if old >= 0:
            _give_up(old, net, held, there, totals)
    result, keep = _make_room(run, stage, net, held, there, totals, rules)
    for place in range(reads[run], reads[run + 1]):
        held[_SEEN, read[place]] = 0
        held[_WANTED, read[place]] -= 1
    if result == 0:
        return 0
    for place in range(changes[run], changes[run + 1], 2):
        held[_THERE, changed[place]] = 0
        held[_THERE, changed[place + 1]] = 1
        there[items[VALUE, changed[place]]] = changed[place + 1]
    for place in range(begin[run], begin[run + 1]):
        item = members[place]
        if place - begin[run] >= BITS or keep >> (place - begin[run]) & 1:
            held[_THERE, item] = 1
            there[items[VALUE, item]] = item
            totals[_LIVE] += items[SIZE, item]
        else:
            held[_COST, item] = _cost(item, net, held)
    order[totals[_RUNS]] = run
    kept[totals[_RUNS]] = keep
    totals[_RUNS] += 1
    totals[_TIME] += net[_STEPS][DURATION, run]
    return result


@inner
def _run_stage(
    stage: int,
    net: Any,
    held: Integers,
    there: Integers,
    totals: Integers,
    rules: Any,
    written: Lists,
    marks: Integers,
    longest: int,
) -> int:
    """Run what is marked, in order; return how it ended, or -1 if it has to be marked anew."""
    begin, members = net[_NEEDS]
    for run in range(stage + 1):
        if not marks[run]:
            continue
        if totals[_RUNS] == len(written[0]) or totals[_TIME] > longest:
            return TOO_LONG
        for place in range(begin[run], begin[run + 1]):
            if not held[_THERE, members[place]]:
                return -1
        result = _run(run, stage, net, held, there, totals, rules, written)
        if result == 0:
            return NO_ROOM
        if result == 2 and run < stage:
            return -1
    return DONE


@inner
def _forget(stage: int, net: Any, held: Integers, there: Integers, totals: Integers) -> None:
    """Free what is of no use after a first run."""
    items = net[_ITEMS]
    for item in range(items.shape[1]):
        if held[_THERE, item] and items[LAST, item] <= stage:
            _give_up(item, net, held, there, totals)


@compiled
def execute(
    net: NetworkArrays,
    values: int,
    memory: int,
    longest: int,
    weights: Floats,
    powers: Floats,
    order: Integers,
    kept: Integers,
) -> tuple[int, int, int]:
    """Run a network within a limit.

    Parameters
    ----------
    net : tuple
        `ExecutorArrays.network_arrays`.
    values : int
        How many values the network has.
    memory, longest : int
        Bytes, and ticks after which it is given up.
    weights, powers : float64 array
        What is added to the score of each item; the powers of size, distance and cost.
    order, kept : int64 array
        Where the runs are written to, and of each which of the items that it writes it keeps, bit
        by bit; as long as there may be runs.

    Returns
    -------
    tuple of int
        How it ended, the number of runs, and the ticks.
    """
    steps, items, needs = net[0], net[1], net[2]
    totals = np.zeros(3, np.int64)
    held = np.zeros((5, items.shape[1]), np.int64)
    there = np.full(values, -1, np.int64)
    marks = np.zeros(steps.shape[1], np.int64)
    redo = np.zeros(values, np.int64)
    stack = np.zeros(items.shape[1] + len(needs[1]) * 2 + 2, np.int64)
    rules = (weights, powers, memory)
    for item in range(items.shape[1]):
        if items[MAKER, item] < 0:
            held[_THERE, item] = 1
            there[items[VALUE, item]] = item
            totals[_LIVE] += items[SIZE, item]
    for stage in range(len(marks)):
        end = -1
        for _ in range(_MOST_LOOKS):
            if not _look(stage, net, held, there, marks, redo, stack):
                end = LOST
            else:
                end = _run_stage(
                    stage, net, held, there, totals, rules, (order, kept), marks, longest
                )
            if end >= 0:
                break
        if end != DONE:
            return (NO_ROOM if end < 0 else end), totals[_RUNS], totals[_TIME]
        _forget(stage, net, held, there, totals)
    end = TOO_LONG if totals[_TIME] > longest else DONE
    return end, totals[_RUNS], totals[_TIME]
