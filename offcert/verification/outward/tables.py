"""A problem as arrays for `search`: both sides of the pivot, and a label while it is expanded."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import compress

import numpy as np

from offcert.core.compiled import IntArray, inlined, inner
from offcert.core.platform import Kind, Link
from offcert.core.trace import Tensor
from offcert.questions.schedule.problem import Problem
from offcert.verification.ends.sides import link_rate, ticks_of
from offcert.verification.limits import TooLargeError

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
        "twice",  # ticks that the link back loses at least if a tensor goes and returns
        "back_rate",  # (2,) numerator and denominator of the bytes a tick, rounded up
        "away_rate",  # (2,)
        "movables",  # (M, 3) class, due, close of each tensor, those that may stay longest first
        "worth",  # (C, R) how urgent the return of a tensor is, by the number still out
        "radix",  # (2, C) weights of the two numbers that stand for what is back
        "shared",  # whether both directions take turns on the link
        "largest",  # bytes of the largest tensor that may be out on this side
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
    """Return the least ticks that the link back loses if so many bytes go away and come back."""
    away = ticks_of_bytes(amount, tables.away_rate) if tables.shared else 0
    return away + ticks_of_bytes(amount, tables.back_rate)


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


# The largest number in the arrays. Derived: it stays inside 64 bits.
_LARGEST = 2**62
# Front: tensors return when they are offloaded, in reversed time. Back: when they are prefetched.
_KINDS = ((Kind.OFFLOAD, Kind.PREFETCH), (Kind.PREFETCH, Kind.OFFLOAD))


@dataclass(frozen=True)
class Cut:
    """A problem cut where the pivot starts."""

    need: int  # Bytes that must be out at the cut
    sizes: tuple[int, ...]  # Bytes of the classes, increasing
    most: tuple[int, ...]  # How many of each class may be out
    sides: tuple[Tables, Tables]  # Front, in reversed time, and back

    @property
    def volume(self) -> int:
        """The bytes that may be out."""
        return sum(size * most for size, most in zip(self.sizes, self.most, strict=True))

    @cached_property
    def cheapest(self) -> list[list[int]]:
        """For each side the classes, first those whose bytes take least time to return."""
        rates = [
            [
                Fraction(ticks, size)
                for ticks, size in zip(side.back.tolist(), self.sizes, strict=True)
            ]
            for side in self.sides
        ]
        return [sorted(range(len(self.sizes)), key=of_side.__getitem__) for of_side in rates]

    @cached_property
    def a_round_trip(self) -> list[Fraction]:
        """For each side the least ticks that its link back loses if a byte goes and comes back."""
        return [
            _a_byte(side.back_rate) + (_a_byte(side.away_rate) if side.shared else 0)
            for side in self.sides
        ]

    @cached_property
    def a_return_on_both(self) -> Fraction:
        """The least ticks in which a byte that is out at the cut returns on both sides."""
        front, back = self.sides
        return _a_byte(front.back_rate) + _a_byte(back.back_rate)


def _a_byte(rate: IntArray) -> Fraction:
    return Fraction(int(rate[1]), int(rate[0]))


@dataclass(frozen=True)
class _Movable:
    """A tensor as one side sees it: before which operation it is due, from which one it is used."""

    size: int
    due: int
    close: int


def gaps_of(tensor: Tensor) -> list[tuple[int, int]]:
    """Return the consecutive uses between which a tensor may be absent."""
    if not tensor.evictable or tensor.size == 0:
        return []
    pairs = zip(tensor.uses, tensor.uses[1:], strict=False)
    return [(before, after) for before, after in pairs if after - before > 1]


def cut_at(problem: Problem, pivot: int, free_below: int) -> Cut:
    """Return both sides of a pivot.

    Tensors of fewer bytes than `free_below`, and those with several gaps, are absent whenever they
    may be. Raises `TooLargeError` if a number might not fit into 64 bits.
    """
    trace, count = problem.trace, len(problem.trace)
    needs = [operation.workspace - problem.platform.memory for operation in trace.operations]
    single = []
    for tensor in trace.tensors:
        for operation in range(max(0, tensor.uses[0]), tensor.uses[-1] + 1):
            needs[operation] += tensor.size
        gaps = gaps_of(tensor)
        if len(gaps) == 1 and tensor.size >= free_below:
            single.append((tensor, *gaps[0]))
            continue
        for before, after in gaps:
            for operation in range(before + 1, after):
                needs[operation] -= tensor.size
    front = [
        _Movable(tensor.size, pivot - 1 - tensor.uses[0], pivot - 1 - before)
        for tensor, before, _ in single
        if tensor.uses[0] < pivot
    ]
    back = [
        _Movable(tensor.size, after - pivot, after - pivot)
        for tensor, _, after in single
        if after > pivot
    ]
    sizes = tuple(sorted({tensor.size for tensor, _, _ in single}))
    both = [tensor.size for tensor, _, after in single if tensor.uses[0] < pivot < after]
    sides = (
        _side(problem, needs, sizes, front, list(range(pivot - 1, -1, -1)), _KINDS[0]),
        _side(problem, needs, sizes, back, list(range(pivot, count)), _KINDS[1]),
    )
    return Cut(needs[pivot], sizes, tuple(both.count(size) for size in sizes), sides)


def _side(
    problem: Problem,
    needs: list[int],
    sizes: tuple[int, ...],
    movables: list[_Movable],
    order: list[int],
    kinds: tuple[Kind, Kind],
) -> Tables:
    members = [[movable for movable in movables if movable.size == size] for size in sizes]
    need = [needs[operation] for operation in order]
    ticks = [[ticks_of(problem, kind, size) for size in sizes] for kind in kinds]
    # Of what is lacking at worst, all may be out and due besides.
    volume = 2 * sum(movable.size for movable in movables) + max([0, *need])
    clock = np.cumsum([0, *(problem.trace.durations[operation] for operation in order)])
    # Ticks that a tensor of each size takes to go and return; of some sizes this side has none.
    trips = [go + come for go, come in zip(*ticks, strict=True)]
    shared = problem.platform.link is Link.SIMPLEX
    counts = [len(listed) for listed in members]
    radix = _radix(counts)
    # All that is ever added up on one side, with what departures and waiting can come to.
    ends = int(clock[-1]) + sum((n + 1) * trip for n, trip in zip(counts, trips, strict=True))
    if max(4 * ends, 4 * volume) >= _LARGEST:
        raise TooLargeError
    columns = np.arange(len(order))
    longest = sorted(movables, key=lambda movable: (-movable.due, -movable.close, movable.size))
    return Tables(
        clock=_array(clock),
        need=_array(need),
        later=_array([max(need[k:], default=-_LARGEST) for k in range(len(need) + 1)]),
        out=places_after([[movable.due for movable in listed] for listed in members], columns),
        absent=places_after([[movable.close for movable in listed] for listed in members], columns),
        here=_array(counts),
        due=_array(sorted({movable.due for movable in movables if movable.due < len(order)})),
        sizes=_array(sizes),
        back=_array(ticks[0]),
        away=_array(ticks[1]),
        twice=min(compress(trips if shared else ticks[0], counts), default=_LARGEST // 2),
        back_rate=_array(link_rate(problem, kinds[0], volume)),
        away_rate=_array(link_rate(problem, kinds[1], volume)),
        movables=_array(
            [(sizes.index(movable.size), movable.due, movable.close) for movable in longest]
        ).reshape(-1, 3),
        worth=_worth(members, len(order)),
        radix=radix,
        shared=shared,
        largest=max(compress(sizes, counts), default=0),
    )


def _radix(here: list[int]) -> IntArray:
    """Return weights for two numbers that tell apart how many of each class are back.

    From ``-here`` to ``here`` may be.
    """
    weights: list[list[int]] = [[], []]
    products = [1, 1]
    for amount in here:
        half = int(products[1] < products[0])
        weights[half].append(products[half])
        weights[1 - half].append(0)
        products[half] *= 2 * amount + 3
    if max(products) >= _LARGEST:
        raise TooLargeError
    return _array(weights).reshape(2, -1)


def _worth(members: list[list[_Movable]], count: int) -> IntArray:
    """Return the share of a class in the bytes times the operations after it has to be back.

    It only orders labels of equal promise. The tensors that may stay longest come first.
    """
    worth = np.zeros((len(members), max([1, *map(len, members)])), dtype=np.int64)
    largest = max((listed[0].size for listed in members if listed), default=1)
    for c, listed in enumerate(members):
        dues = sorted((min(movable.due, count) for movable in listed), reverse=True)
        for rank, due in enumerate(dues):
            worth[c, rank] = -(-listed[0].size * 1000 // largest) * (count + 1 - due)
    return worth


def places_after(places: list[list[int]], columns: IntArray) -> IntArray:
    """Return how many places of each list come after each column."""
    rows = [(_array(listed)[:, None] > columns[None, :]).sum(axis=0) for listed in places]
    return _array(rows).reshape(len(places), len(columns))


def _array(values: object) -> IntArray:
    return np.array(values, dtype=np.int64)
