"""One side of a pivot as arrays, and how long the rest of it takes from each amount, for `search`.

`prospects` goes through the amounts backwards, from the end, as if no size ever ran out.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, compiled, inlined, inner
from offcert.verification.growing import grown

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

# The mark of no label, and the time of what cannot be. By definition.
NONE = -1
UNKNOWN = -(2**62)
# Pairs that are told apart for one amount. Arbitrary.
WIDTH = 16


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
    between the end of `a` and the operation that needs it. `clock`, `need` and `rate` are as in
    `Tables`; `ready` and `absent` say of each tensor after which operation it leaves, and during
    which it can be absent.
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

    From each amount the side ends at ``max(free + pair[0], waited + pair[1])`` or later, for one of
    its pairs; `bounds` has the first row of each amount, and the row after its last. An amount
    without pairs leads to no end.
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
