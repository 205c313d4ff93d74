"""The search behind `check`: whether one side of an operation can end within a limit.

Every transfer moves at least one unit, so labels are expanded in order of the amount that has
moved: all labels with one amount are known before the first of them is expanded. There is no queue
by promise, there are no parents and no table of keys: the search shares nothing with the program
whose result it confirms.

Before that, `prospects` goes through the amounts backwards, from the end, and finds for each how
long the rest of the side takes at least. A label that cannot end in time is not stored.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, compiled, inlined, inner
from offcert.verify.growing import grown

# One side as arrays; `J` operations, `C` sizes, at most `R` tensors of one size.
Tables = namedtuple(
    "Tables",
    [
        "clock",  # (J+1,) end of each operation if nothing waits; clock[j] is the start of j
        "need",  # (J+1,) bytes absent during each operation; the last is the cut
        "floor",  # (J+1,) how early the side can end if nothing has waited before
        "at_hand",  # (J+1,) units of all tensors that can move once so many operations have begun
        "units",  # (C,) what one transfer moves
        "times",  # (C,) ticks of one transfer
        "ready",  # (C, R) operation that must have ended before the r-th leaves, increasing
        "amount",  # (C,) tensors
        "bases",  # (C,) values that the number of one size that have left can have
        "radix",  # (C,) weight of that number in a label's code; 0 if the size is not counted
        "rate",  # (2,) bandwidth as numerator and denominator
        "unit",  # bytes
    ],
)

TOO_LATE, IN_TIME, TOO_LARGE = range(3)
# The mark of no label, and the time of what cannot be. By definition.
NONE = -1
UNKNOWN = -(2**62)
# Pairs that are told apart for one amount. Arbitrary.
WIDTH = 16
# Columns of a label: how many of each counted size have left, when the link is free, the ticks that
# the device has waited, and the next label with the same amount moved.
CODE, FREE, WAITED, NEXT = range(4)
# How many rows of labels have been used so far, and the first of those that are free again.
STORED, SPARE = range(2)


@compiled
def floors(
    clock: IntArray,
    need: IntArray,
    sizes: IntArray,
    ready: IntArray,
    absent: NDArray[np.bool_],
    rate: IntArray,
) -> IntArray:
    """Return, for each operation, how early the side can end if nothing has waited before it.

    Whatever `need` asks of tensors that are not ready before operation `a` must pass the link
    between the end of `a` and the operation that needs it.

    Parameters
    ----------
    clock, need, rate : int64 arrays
        As in `Tables`.
    sizes, ready : int64 array, shape (I,)
        Bytes of each tensor, and the operation that must have ended before it leaves.
    absent : bool array, shape (I, J+1)
        During which operations it can be absent.
    """
    last = len(clock) - 1
    floor = np.empty(last + 1, dtype=np.int64)
    floor[last] = clock[last]
    later = np.zeros(last + 1, dtype=np.int64)
    everything = np.zeros(last + 1, dtype=np.int64)
    for i in range(len(sizes)):
        for j in range(last + 1):
            if absent[i, j]:
                everything[j] += sizes[i]
    order = np.argsort(-ready)
    place = 0
    for a in range(last - 1, -1, -1):
        while place < len(order) and ready[order[place]] >= a:
            for j in range(last + 1):
                if absent[order[place], j]:
                    later[j] += sizes[order[place]]
            place += 1
        floor[a] = floor[a + 1]
        for j in range(a + 1, last + 1):
            lacking = need[j] - (everything[j] - later[j])
            if lacking > 0:
                ticks = -(-lacking * rate[1] // rate[0])
                floor[a] = max(floor[a], clock[a + 1] + ticks - clock[j] + floor[j])
    return floor


@inlined
def _still(tables: Tables, moved: int) -> int:
    """Return the least time from when the link is free to the end, once `moved` bytes have left."""
    still = 0
    for j in range(len(tables.clock)):
        lacking = tables.need[j] - moved
        if lacking > 0:
            ticks = -(-lacking * tables.rate[1] // tables.rate[0])
            still = max(still, ticks - tables.clock[j] + tables.floor[j])
    return still


@inlined
def operations_run(tables: Tables, moved: int, run: int) -> int:
    """Return how many operations can run once `moved` bytes have left; at least `run` can."""
    while run < len(tables.clock) - 1 and tables.need[run] <= moved:
        run += 1
    return run


@inlined
def with_pair(pairs: IntArray, count: int, free: int, wait: int) -> int:
    """Add a pair to the first `count` rows of `pairs` unless one is as good; return how many."""
    for row in range(count):
        if pairs[row, 0] <= free and pairs[row, 1] <= wait:
            return count
    kept = 0
    for row in range(count):
        if pairs[row, 0] < free or pairs[row, 1] < wait:
            pairs[kept, 0], pairs[kept, 1] = pairs[row, 0], pairs[row, 1]
            kept += 1
    if kept == len(pairs):
        # There is no room: one pair takes the place of two and claims no more than either.
        kept -= 1
        free, wait = min(free, pairs[kept, 0]), min(wait, pairs[kept, 1])
    pairs[kept, 0], pairs[kept, 1] = free, wait
    return kept + 1


@inner
def prospects(tables: Tables, levels: int) -> tuple[IntArray, IntArray]:
    """Return how long the rest of the side takes from each amount, as if no size ever ran out.

    Returns
    -------
    bounds : int64 array, shape (levels+1, 2)
        First row of each amount, and the row after its last.
    pairs : int64 array, shape (P, 2)
        From each amount the side ends at ``max(free + pair[0], waited + pair[1])`` or later, for
        one of its pairs. An amount without pairs leads to no end.
    """
    bounds = np.zeros((levels + 1, 2), dtype=np.int64)
    pairs = np.zeros((2 * levels + WIDTH + 1, 2), dtype=np.int64)
    pairs[0, 1] = tables.clock[-1]
    bounds[levels, 1] = stored = 1
    runs = np.zeros(levels + 1, dtype=np.int64)
    for level in range(levels + 1):
        runs[level] = operations_run(tables, level * tables.unit, runs[max(0, level - 1)])
    found = np.empty((WIDTH, 2), dtype=np.int64)
    for level in range(levels - 1, -1, -1):
        count, run, still = 0, runs[level], UNKNOWN
        for c in range(len(tables.units)):
            ready, reached = tables.ready[c, 0], level + tables.units[c]
            if ready >= run or reached > tables.at_hand[run]:
                continue
            reached = min(reached, levels)
            if still == UNKNOWN:
                still = _still(tables, level * tables.unit)
            for row in range(bounds[reached, 0], bounds[reached, 1]):
                free = tables.times[c] + pairs[row, 0]
                if runs[reached] > run:
                    free = max(free, tables.times[c] - tables.clock[run] + pairs[row, 1])
                wait = max(pairs[row, 1], tables.clock[ready + 1] + free)
                count = with_pair(found, count, max(free, still), max(wait, tables.floor[run]))
        if stored + count > len(pairs):
            pairs = grown(pairs)
        bounds[level, 0] = stored
        for row in range(count):
            pairs[stored, 0], pairs[stored, 1] = found[row, 0], found[row, 1]
            stored += 1
        bounds[level, 1] = stored
    return bounds, pairs


@inlined
def in_time(begin: int, end: int, pairs: IntArray, child: tuple[int, int, int], limit: int) -> bool:
    """Return whether a label with the pairs of the rows from `begin` to `end` ends by `limit`."""
    for row in range(begin, end):
        if child[1] + pairs[row, 0] <= limit and child[2] + pairs[row, 1] <= limit:
            return True
    return False


@inner
def members(labels: IntArray, first: int) -> IntArray:
    """Return the labels of the list that begins with `first`."""
    count, label = 0, first
    while label != NONE:
        count, label = count + 1, labels[label, NEXT]
    listed = np.empty(count, dtype=np.int64)
    label = first
    for index in range(count):
        listed[index] = label
        label = labels[label, NEXT]
    return listed


@inner
def undominated(labels: IntArray, listed: IntArray) -> IntArray:
    """Return the labels that no other with the same code is as good as."""
    for column in (WAITED, FREE, CODE):
        listed = listed[np.argsort(labels[listed, column], kind="mergesort")]
    count = 0
    for label in listed:
        # The labels of one code are in order of `FREE`, so to be kept each must have waited less.
        known = listed[max(0, count - 1)]
        same = count > 0 and labels[known, CODE] == labels[label, CODE]
        if not same or labels[known, WAITED] > labels[label, WAITED]:
            listed[count] = label
            count += 1
    return listed[:count]


@inlined
def store_before(labels: IntArray, used: IntArray, first: int, child: tuple[int, int, int]) -> int:
    """Put a label before `first`, where there is room; return its place."""
    new = used[SPARE]
    if new == NONE:
        new = used[STORED]
        used[STORED] += 1
    else:
        used[SPARE] = labels[new, NEXT]
    labels[new, CODE], labels[new, FREE], labels[new, WAITED] = child
    labels[new, NEXT] = first
    return int(new)


@inlined
def next_ready(tables: Tables, code: int, level: int, run: int, c: int) -> int:
    """Return after which operation the next tensor of size `c` leaves; `UNKNOWN` if none can."""
    rank = 0
    if tables.radix[c] > 0:
        rank = code // tables.radix[c] % tables.bases[c]
        if rank == tables.amount[c]:
            return UNKNOWN
    ready = tables.ready[c, rank]
    if ready >= run or level + tables.units[c] > tables.at_hand[run]:
        return UNKNOWN
    return ready


@inlined
def child_of(tables: Tables, label: IntArray, level: int, run: int, c: int) -> tuple[int, int, int]:
    """Return code, time at which the link is free and ticks waited after a transfer of size `c`.

    The second is `NONE` if there is nothing to transfer.
    """
    code, free, waited = label[CODE], label[FREE], label[WAITED]
    ready = next_ready(tables, code, level, run, c)
    if ready == UNKNOWN:
        return code, NONE, waited
    reached = level + tables.units[c]
    free = max(free, waited + tables.clock[ready + 1]) + tables.times[c]
    if operations_run(tables, reached * tables.unit, run) > run:
        waited = max(waited, free - tables.clock[run])
    return code + tables.radix[c], free, waited


@compiled
def search(tables: Tables, limit: int, max_labels: int) -> int:
    """Return whether the side can end by `limit`: `IN_TIME`, `TOO_LATE`, or `TOO_LARGE` to say.

    Parameters
    ----------
    tables : Tables
        The tables of the side. A size with radix 0 never runs out, which is a relaxation.
    limit : int
        Ticks of the side's clock.
    max_labels : int
        How many labels to expand, and to hold at a time, at most.
    """
    levels = -(-tables.need.max() // tables.unit)
    if max(tables.floor[0], _still(tables, 0)) > limit:
        return TOO_LATE
    if levels == 0:
        return IN_TIME
    bounds, pairs = prospects(tables, levels)
    if not in_time(bounds[0, 0], bounds[0, 1], pairs, (0, 0, 0), limit):
        return TOO_LATE
    first = np.full(levels, NONE, dtype=np.int64)
    first[0] = 0
    labels = np.zeros((1024, 4), dtype=np.int64)
    labels[0, NEXT] = NONE
    used = np.array([1, NONE])
    expanded = run = 0
    for level in range(levels):
        if first[level] == NONE:
            continue
        run = operations_run(tables, level * tables.unit, run)
        listed = members(labels, first[level])
        for label in undominated(labels, listed):
            expanded += 1
            if used[STORED] + len(tables.units) > len(labels):
                labels = grown(labels, len(tables.units))
            for c in range(len(tables.units)):
                child = child_of(tables, labels[label], level, run, c)
                reached = min(level + tables.units[c], levels)
                begin, end = bounds[reached, 0], bounds[reached, 1]
                if child[1] == NONE or not in_time(begin, end, pairs, child, limit):
                    continue
                if reached == levels:
                    # All operations have run, so what is to come was the end.
                    return IN_TIME
                first[reached] = store_before(labels, used, first[reached], child)
            if expanded > max_labels or used[STORED] > max_labels:
                return TOO_LARGE
        for label in listed:
            labels[label, NEXT] = used[SPARE]
            used[SPARE] = label
    return TOO_LATE
