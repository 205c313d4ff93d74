"""Arrays for the search behind `check`, and the least times that follow from them."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from offcert.core.compiled import inlined

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
        "way",  # (W, 3) earliest begin on the other side, class and rank, latest first
        "rates",  # (2, 2) of the link, out and back, each as numerator and denominator
        "duplex",  # whether transfers out and back may overlap
    ],
)

# Facts about a label while it is expanded.
Standing = namedtuple(
    "Standing",
    [
        "out",  # (C,) tensors that are out
        "absent",  # (J+1,) bytes absent during each operation
        "late",  # (J+1,) ticks from `FREE` to the end of the side, as each operation lacks bytes
        "excess",  # (1,) ticks in which what cannot be out at the cut returns
        "due",  # (3,) the first operation before which something is due, whose class that is, and
        # the first operation before which something of another class is due
    ],
)

# Columns of a label. On a duplex link `FREE` is of the way out, `BACK` of the way back (otherwise
# 0), and `HELD` is the last operation that has waited for a return. The last transfer is class + 1
# if it went out, minus that if it came back; what is out stands in one number, in which each class
# has a digit of weight `radix`. By definition.
FREE, BACK, WAITED, HELD, RUN, RETURNED, LAST, OUT = range(8)
COLUMNS = 8
NONE = -1
# Rows of `rates`.
OUTWARD, BACKWARD = range(2)


@inlined
def _ticks(tables: Tables, direction: int, amount: int) -> int:
    return -(-amount * tables.rates[direction, 1] // tables.rates[direction, 0])


def new_standing(tables: Tables) -> Standing:
    """Return room for the facts about a label."""
    classes, columns = tables.spans.shape
    sizes = classes, columns, columns, 1, 3
    return Standing(*(np.zeros(size, dtype=np.int64) for size in sizes))


@inlined
def take_stock(tables: Tables, code: int, now: Standing) -> None:
    """Write down what follows from the tensors that are out."""
    classes, count = len(tables.sizes), len(tables.clock) - 1
    rest = code
    now.excess[0], now.due[0], now.due[1], now.due[2] = 0, count, NONE, count
    for c in range(classes - 1, -1, -1):
        now.out[c] = rest // tables.radix[c]
        rest -= now.out[c] * tables.radix[c]
        now.excess[0] += max(0, now.out[c] - tables.across[c]) * tables.back_times[c]
        due = tables.due[c, now.out[c] - 1] if now.out[c] > 0 else count
        if due < now.due[0]:
            now.due[2], now.due[0], now.due[1] = now.due[0], due, c
        else:
            now.due[2] = min(now.due[2], due)
    rate = tables.rates[OUTWARD]
    for j in range(count + 1):
        absent = 0
        for c in range(classes):
            absent += tables.sizes[c] * min(now.out[c], tables.spans[c, j])
        # Rounded down, as the ticks of one transfer more, which are taken away, are rounded up.
        lacking = (tables.need[j] - absent) * rate[1] // rate[0]
        now.absent[j], now.late[j] = absent, lacking - tables.clock[j] + tables.head[j]


@inlined
def first_due(tables: Tables, now: Standing, c: int, change: int) -> int:
    """Return before which operation something must be back, if `change` more of a class are out."""
    others = now.due[2] if now.due[1] == c else now.due[0]
    out = now.out[c] + change
    return int(min(others, tables.due[c, out - 1]) if out > 0 else others)


@inlined
def absent_after(tables: Tables, now: Standing, c: int, change: int, j: int) -> int:
    """Return the bytes absent during an operation if `change` more of a class are out."""
    rank = now.out[c] - (change < 0)
    return int(now.absent[j] + change * tables.sizes[c] * (rank < tables.spans[c, j]))


@inlined
def to_the_end(
    tables: Tables, now: Standing, c: int, change: int, run: int
) -> tuple[int, int, int]:
    """Return two bounds on the ticks from `FREE` to the side's end, and the most bytes lacking.

    The first is due to what operations lack, the second to what cannot be out at the cut.
    """
    rank = now.out[c] - (change < 0)
    excess = now.excess[0]
    if rank >= tables.across[c]:
        excess += change * tables.back_times[c]
    best = missing = 0
    for j in range(run, len(tables.clock)):
        counts = change * (rank < tables.spans[c, j])
        lacking = tables.need[j] - now.absent[j] - counts * tables.sizes[c]
        if lacking > 0:
            missing = max(missing, lacking)
            best = max(best, now.late[j] - counts * tables.out_times[c])
    return best, excess, missing


@inlined
def beyond_the_cut(tables: Tables, now: Standing, c: int) -> int:
    """Return the least ticks from the return of the last tensor of a class to the end of all."""
    for w in range(len(tables.way)):
        if tables.way[w, 1] == c and tables.way[w, 2] == now.out[c] - 1:
            return int(tables.way[w, 0])
    return 0


@inlined
def on_the_way(tables: Tables, now: Standing, c: int, change: int, missing: int) -> int:
    """Return the least ticks from `FREE` on in which all that crosses the cut can move.

    That is what is out, which returns on the other side, and what must still leave, which moves
    twice, on a simplex link one after the other.
    """
    way = tail = 0
    for w in range(len(tables.way)):
        earliest, d, rank = tables.way[w, 0], tables.way[w, 1], tables.way[w, 2]
        if rank < now.out[d] + (change if d == c else 0):
            way += tables.back_times[d]
            tail = max(tail, way + earliest)
    least = tables.way[len(tables.way) - 1, 0] if len(tables.way) else 0
    extra = again = 0
    if missing > 0:
        extra = 0 if tables.duplex else _ticks(tables, OUTWARD, missing)
        again = _ticks(tables, BACKWARD, missing)
    return int(extra + max(tail, way + again + least))
