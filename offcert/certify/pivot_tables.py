"""The numbers that the search behind `pivot_check` works on, and what they say about time."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import inlined

IntArray = NDArray[np.int64]

# One side of a cut as arrays; `J` operations, `C` classes of equal tensors, `R` tensors at most in
# one. All times are ticks of the side's own clock, all sizes bytes.
Tables = namedtuple(
    "Tables",
    [
        "clock",  # (J+1,) end of each operation if nothing waits; clock[j] is the start of j
        "need",  # (J+1,) bytes absent during each operation; the last is the cut
        "idle_need",  # (J+1,) bytes absent just before each operation
        "head",  # (J+1,) how early the side can end if nothing has waited before
        "sizes",  # (C,)
        "out_times",  # (C,) ticks of a transfer out
        "back_times",  # (C,) ticks of a transfer back
        "here",  # (C,) tensors that exist on this side
        "across",  # (C,) tensors that can be out at the cut
        "spans",  # (C, J+1) tensors that can be absent during each operation
        "ready",  # (C, R) operation that must have ended before the tensor leaves
        "opens",  # (C, R) it is absent strictly after this operation
        "closes",  # (C, R) ... and strictly before this one
        "due",  # (C, R) it must be back before this operation
        "once",  # (C,) bit of the class if its tensors must not leave twice, or 0
        "radix",  # (C,) weight of the class in the number that stands for what is out
        "way",  # (W, 3) earliest time on the other side, class and rank, latest first
        "rates",  # (2, 2) of the link, out and back, each as numerator and denominator
    ],
)

# Columns of a label.
FREE, WAITED, RUN, RETURNED, LAST_BACK, OUT = range(6)
COLUMNS = 6
NONE = -1
# Rows of `rates`.
OUTWARD, BACKWARD = range(2)


@inlined
def _ticks(tables: Tables, direction: int, amount: int) -> int:
    return -(-amount * tables.rates[direction, 1] // tables.rates[direction, 0])


@inlined
def know(tables: Tables, out: IntArray, known: IntArray) -> None:
    """Fill in the bytes absent at each operation, and by how much the link's time must grow.

    Row 1 leads from `FREE` to the end of the side, row 2 to the end of the schedule.
    """
    classes, count = len(tables.sizes), len(tables.clock) - 1
    excess = 0
    for c in range(classes):
        excess += max(0, out[c] - tables.across[c]) * tables.back_times[c]
    way = tail = 0
    for w in range(len(tables.way)):
        earliest, c, rank = tables.way[w]
        if rank < out[c]:
            way += tables.back_times[c]
            tail = max(tail, way + earliest)
    least = tables.way[len(tables.way) - 1, 0] if len(tables.way) else 0
    best, missing = excess, 0
    for j in range(count, -1, -1):
        absent = 0
        for c in range(classes):
            absent += tables.sizes[c] * min(out[c], tables.spans[c, j])
        known[0, j] = absent
        lacking = tables.need[j] - absent
        if lacking > 0:
            missing = max(missing, lacking)
            best = max(best, _ticks(tables, OUTWARD, lacking) - tables.clock[j] + tables.head[j])
        extra = _ticks(tables, OUTWARD, missing)
        again = _ticks(tables, BACKWARD, missing)
        known[1, j] = best
        known[2, j] = excess + extra + max(tail, way + again + least)
