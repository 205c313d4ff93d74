"""A view of one side for `search`, and of a label while it is expanded."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from offcert.core.compiled import IntArray, inlined, inner

# One side: K operations in the order outward, C classes of tensors of one size.
Tables = namedtuple(
    "Tables",
    [
        "clock",  # (K+1,) sums of durations
        "need",  # (K,) bytes that must be absent during each operation; 0 or less: none
        "later",  # (K+1,) the largest need from each operation on
        "out",  # (C, K) how many may be out when an operation starts
        "absent",  # (C, K) how many may be absent while it runs
        "here",  # (C,) how many may be out on this side at all
        "due",  # (E,) operations before which some tensor must be back
        "sizes",  # (C,) bytes
        "back",  # (C,) ticks of the transfer that brings one back
        "away",  # (C,) ticks of the one that takes it away
        "twice",  # ticks in which a tensor can go and return, at least
        "back_rate",  # (2,) numerator and denominator of the bytes a tick, rounded up
        "away_rate",  # (2,)
        "movables",  # (M, 3) class, due, close of each tensor, those that may stay longest first
        "worth",  # (C, R) how urgent the return of a tensor is, by the number still out
        "radix",  # (2, C) weights of the two numbers that stand for what is back
    ],
)
# A question about a side. Between `least` and `most` bytes are out at the cut, and all of them take
# `ticks` to return. The link is free at `begin`; a tensor of class `leaving`, if that is not
# negative, is on its way out by then. The side is followed until `enough` bytes are back and, if
# `to_end`, all operations have run; ends after `limit` are of no interest.
Asked = namedtuple(
    "Asked", ["least", "most", "begin", "leaving", "ticks", "limit", "enough", "to_end"]
)
# All that is at hand when a label is expanded.
View = namedtuple(
    "View", ["tables", "low", "high", "asked", "one_set", "rest", "back", "known", "returning"]
)

# Rows of `View.known`, by operation: bytes that can be absent, that may be out, that are overdue.
CAN, MAY, OVERDUE = range(3)
# The largest number that is still multiplied. Derived: products stay inside 64 bits.
_LARGE = 2**60


@inner
def sums(tables: Tables, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
    """Return the arrays `View.known` and `View.returning` as they are while no tensor is back."""
    classes, count = tables.out.shape
    known = np.zeros((3, count), dtype=np.int64)
    returning = np.zeros(len(tables.due), dtype=np.int64)
    for c in range(classes):
        size = tables.sizes[c]
        for k in range(count):
            known[CAN, k] += size * min(high[c], tables.absent[c, k])
            known[MAY, k] += size * min(high[c], tables.out[c, k])
            known[OVERDUE, k] += size * max(0, low[c] - tables.out[c, k])
        for e in range(len(tables.due)):
            returning[e] += tables.back[c] * min(high[c], tables.out[c, tables.due[e]])
    return known, returning


@inlined
def exchange(view: View, c: int, back: int) -> None:
    """Change the sums from those with none of a class back to those with `back` of it."""
    tables, known = view.tables, view.known
    size, low, high = tables.sizes[c], view.low[c], view.high[c]
    for k in range(len(tables.need)):
        absent, out = tables.absent[c, k], tables.out[c, k]
        known[CAN, k] += size * (min(high - back, absent) - min(high, absent))
        known[MAY, k] += size * (min(high - back, out) - min(high, out))
        known[OVERDUE, k] += size * (max(0, low - back - out) - max(0, low - out))
    for e in range(len(tables.due)):
        out = tables.out[c, tables.due[e]]
        view.returning[e] += tables.back[c] * (min(high - back, out) - min(high, out))


@inlined
def lost(view: View, c: int, change: int, most: int) -> int:
    """Return by how much ``min(out, most)`` falls if `change` more of a class are back."""
    out = view.high[c] - view.back[c]
    return int(min(out, most) - min(out - change, most))


@inlined
def can_be_absent(view: View, c: int, change: int, k: int) -> int:
    """Return the bytes that can be absent during operation `k`."""
    fewer = lost(view, c, change, view.tables.absent[c, k])
    return int(view.known[CAN, k] - view.tables.sizes[c] * fewer)


@inlined
def overdue(view: View, c: int, change: int, k: int) -> int:
    """Return the bytes that are surely out and must be back before operation `k`."""
    out, most = view.low[c] - view.back[c], view.tables.out[c, k]
    fewer = max(0, out - most) - max(0, out - change - most)
    return int(view.known[OVERDUE, k] - view.tables.sizes[c] * fewer)


@inlined
def missing(view: View, c: int, change: int, moved: int, k: int) -> int:
    """Return the bytes by which less can be absent than operation `k` needs; 0 if it can run."""
    need = view.tables.need[k]
    if need <= 0:
        return 0
    can = min(view.asked.most - moved, can_be_absent(view, c, change, k))
    return int(max(0, need - can))


@inlined
def ticks_of_bytes(amount: int, rate: IntArray) -> int:
    """Return the least ticks in which so many bytes can pass the link."""
    whole = amount // rate[0]
    return int(whole * rate[1] + ((amount - whole * rate[0]) * rate[1] + rate[0] - 1) // rate[0])


@inlined
def both_ways(tables: Tables, amount: int) -> int:
    """Return the least ticks in which so many bytes can go away and come back."""
    return ticks_of_bytes(amount, tables.away_rate) + ticks_of_bytes(amount, tables.back_rate)


@inlined
def dot(one: IntArray, two: IntArray) -> int:
    """Return the sum of the products."""
    total = 0
    for c in range(len(one)):
        total += one[c] * two[c]
    return total


@inner
def rests(tables: Tables, high: IntArray) -> IntArray:
    """Return the least ticks from the start of each operation to the end, if nothing leaves.

    Seen from the end, what an operation needs must have passed the link before it, bit by bit, each
    tensor only once it is there, those first that are there first. In units of a tick divided by
    the numerator of the rate all times are whole.
    """
    count = len(tables.need)
    scale, a_byte = tables.back_rate
    total, volume = tables.clock[count], dot(tables.sizes, high)
    rest = np.zeros(count, dtype=np.int64)
    if (total + 1) >= _LARGE // scale or volume >= _LARGE // max(a_byte, 1):
        for k in range(count):
            rest[k] = total - tables.clock[k]
        return rest
    since = 0
    used = np.zeros(len(high), dtype=np.int64)
    for k in range(count - 1, -1, -1):
        missing, passed = max(0, tables.need[k]), 0
        used[:] = 0
        for m in range(len(tables.movables)):
            c, due, close = tables.movables[m]
            if missing == 0:
                break
            if close > k and used[c] < high[c]:
                used[c] += 1
                there = rest[due] * scale if due < count else 0
                part = min(missing, tables.sizes[c])
                passed = max(passed, there) + part * a_byte
                missing -= part
        since = max(since, passed) + (tables.clock[k + 1] - tables.clock[k]) * scale
        rest[k] = -(-since // scale)
    return rest
