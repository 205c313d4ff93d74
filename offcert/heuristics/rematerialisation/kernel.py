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

from offcert.core.compiled import FloatArray, IntArray, compiled, inner
from offcert.heuristics.rematerialisation.state import (
    COST,
    DURATION,
    LAST,
    LEAN,
    LIST,
    LISTED,
    LIVE,
    MAKER,
    NEXT,
    NONE,
    REPEATABLE,
    RUNS,
    SAFE,
    SEEN,
    SIZE,
    THERE,
    TIME,
    VALUE,
    WANTED,
    WORKSPACE,
    ExecutorArrays,
    enlist,
    give_up,
    look,
    making_cost,
    strike,
)

Lists = tuple[IntArray, IntArray]

# How often the needs of one stage are looked at anew, at most. Arbitrary.
_MOST_LOOKS = 200
# Ways in which an attempt ends. By definition.
DONE, NO_ROOM, TOO_LONG, LOST = 0, 1, 2, 3
# Items of a run that bits are there for; what it writes beyond them it keeps. By definition.
BITS = 60
# The mark of an item that the present run uses. By definition.
_IN_USE = 2


@inner
def _score(item: int, stage: int, net: ExecutorArrays, held: IntArray, rules: Any) -> float:
    """Return how good it is to give an item up."""
    (begin, members), before = net.readers, net.before
    weights, powers, _ = rules
    end = begin[item + 1]
    place = max(begin[item], held[NEXT, item])
    while place < end and members[place] <= stage:
        place += 1
    held[NEXT, item] = place
    # What nobody reads directly serves only to make other things again.
    reader = members[place] if place < end else net.items[LAST, item]
    far = before[max(reader, stage)] - before[stage] + 1.0
    if place == end:
        far *= 4.0
    cost = 1.0 + making_cost(item, net, held)
    return powers[0] * math.log(far) - powers[1] * math.log(cost) + weights[item]


@inner
def _free(
    room: int, stage: int, wanted_too: bool, net: ExecutorArrays, state: Any, rules: Any
) -> int:
    """Give items up until there is room; return 1, 2 if the stage needs one of them, or 0."""
    held, _, totals = state
    items, outcome = net.items, 1
    while totals[LIVE] + room > rules[2]:
        best, value = -1, -np.inf
        for place in range(totals[LISTED]):
            item = held[LIST, place]
            if not items[SAFE, item] or not items[SIZE, item]:
                continue
            if held[SEEN, item] == _IN_USE or (held[WANTED, item] and not wanted_too):
                continue
            score = _score(item, stage, net, held, rules)
            if held[WANTED, item]:
                score -= 1e6
            if score > value or (score == value and item < best):
                best, value = item, score
        if best < 0:
            return 0
        if held[WANTED, best]:
            outcome = 2
        give_up(best, net, state)
    return outcome


@inner
def _soon(item: int, run: int, stage: int, net: ExecutorArrays, held: IntArray) -> bool:
    """Whether a run's output is needed in this stage, or by a reader that may run again."""
    if held[WANTED, item] > 0:
        return True
    begin, members = net.readers
    if run == stage:
        for place in range(begin[item], begin[item + 1]):
            if net.steps[REPEATABLE, members[place]]:
                return True
    return False


@inner
def _make_room(
    run: int, stage: int, net: ExecutorArrays, state: Any, rules: Any
) -> tuple[int, int]:
    """Return the result of `_free`, and which of the items that it writes a run keeps, as bits."""
    steps, items = net.steps, net.items
    begin, members = net.makes
    first, last = begin[run], begin[run + 1]
    whole, part, some = steps[WORKSPACE, run], steps[LEAN, run], 0
    for place in range(first, last):
        item = members[place]
        whole += items[SIZE, item]
        beyond = place - first >= BITS
        if beyond or _soon(item, run, stage, net, state[0]):
            some |= 0 if beyond else 1 << (place - first)
            part += items[SIZE, item]
    everything = (1 << min(last - first, BITS)) - 1
    leaner = steps[LEAN, run] != NONE and some != everything and part < whole
    for wanted_too in (False, True):
        result = _free(whole, stage, wanted_too, net, state, rules)
        if result:
            return result, everything
        if leaner:
            result = _free(part, stage, wanted_too, net, state, rules)
            if result:
                return result, some
    return 0, 0


@inner
def _run(run: int, stage: int, net: ExecutorArrays, state: Any, rules: Any, written: Lists) -> int:
    """Run a computation; return 1, 2 if the stage has to be looked at anew, or 0 without room."""
    held, there, totals = state
    items, (order, kept) = net.items, written
    reads, read = net.needs
    begin, members = net.makes
    changes, changed = net.turns
    for place in range(reads[run], reads[run + 1]):
        held[SEEN, read[place]] = _IN_USE
    # An item that is written again takes the place of the one that was there.
    for place in range(begin[run], begin[run + 1]):
        old = there[items[VALUE, members[place]]]
        if old >= 0:
            give_up(old, net, state)
    result, keep = _make_room(run, stage, net, state, rules)
    for place in range(reads[run], reads[run + 1]):
        held[SEEN, read[place]] = 0
        held[WANTED, read[place]] -= 1
    if result == 0:
        return 0
    for place in range(changes[run], changes[run + 1], 2):
        strike(changed[place], held, totals)
        enlist(changed[place + 1], held, totals)
        there[items[VALUE, changed[place]]] = changed[place + 1]
    for place in range(begin[run], begin[run + 1]):
        item = members[place]
        if place - begin[run] >= BITS or keep >> (place - begin[run]) & 1:
            enlist(item, held, totals)
            there[items[VALUE, item]] = item
            totals[LIVE] += items[SIZE, item]
        else:
            held[COST, item] = making_cost(item, net, held)
    order[totals[RUNS]] = run
    kept[totals[RUNS]] = keep
    totals[RUNS] += 1
    totals[TIME] += net.steps[DURATION, run]
    return result


@inner
def _run_stage(
    stage: int,
    net: ExecutorArrays,
    state: Any,
    rules: Any,
    written: Lists,
    marks: IntArray,
    longest: int,
) -> int:
    """Run marked computations in order; return how that ended, or -1 to mark anew."""
    held, _, totals = state
    begin, members = net.needs
    for run in range(stage + 1):
        if not marks[run]:
            continue
        if totals[RUNS] == len(written[0]) or totals[TIME] > longest:
            return TOO_LONG
        for place in range(begin[run], begin[run + 1]):
            if not held[THERE, members[place]]:
                return -1
        result = _run(run, stage, net, state, rules, written)
        if result == 0:
            return NO_ROOM
        if result == 2 and run < stage:
            return -1
    return DONE


@inner
def _forget(stage: int, net: ExecutorArrays, state: Any) -> None:
    """Free items that are of no use after a first run."""
    held, _, totals = state
    items = net.items
    for place in range(totals[LISTED] - 1, -1, -1):
        item = held[LIST, place]
        if items[LAST, item] <= stage:
            give_up(item, net, state)


@compiled
def execute(
    net: ExecutorArrays,
    values: int,
    memory: int,
    longest: int,
    weights: FloatArray,
    powers: FloatArray,
    order: IntArray,
    kept: IntArray,
) -> tuple[int, int, int]:
    """Run a network within a limit; return how it ended, the number of runs, and the ticks.

    After so many ticks it is given up. Weights are
    added to the score of each item, its size among them; powers are those of distance and cost. The
    runs are written to `order`, and to `kept` which of the items that each writes it keeps, bit by
    bit; both are as long as there may be runs.
    """
    steps, items, needs = net.steps, net.items, net.needs
    totals = np.zeros(4, np.int64)
    held = np.zeros((7, items.shape[1]), np.int64)
    there = np.full(values, -1, np.int64)
    marks = np.zeros(steps.shape[1], np.int64)
    redo = np.zeros(values, np.int64)
    stack = np.zeros(items.shape[1] + len(needs[1]) * 2 + 2, np.int64)
    state = (held, there, totals)
    rules = (weights, powers, memory)
    for item in range(items.shape[1]):
        if items[MAKER, item] < 0:
            enlist(item, held, totals)
            there[items[VALUE, item]] = item
            totals[LIVE] += items[SIZE, item]
    for stage in range(len(marks)):
        end = -1
        for _ in range(_MOST_LOOKS):
            if not look(stage, net, held, there, marks, redo, stack):
                end = LOST
            else:
                end = _run_stage(stage, net, state, rules, (order, kept), marks, longest)
            if end >= 0:
                break
        if end != DONE:
            return (NO_ROOM if end < 0 else end), totals[RUNS], totals[TIME]
        _forget(stage, net, state)
    end = TOO_LONG if totals[TIME] > longest else DONE
    return end, totals[RUNS], totals[TIME]
