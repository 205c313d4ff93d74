"""A problem as arrays for `check`: both sides of the pivot."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import compress

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.platform import Kind
from offcert.core.trace import Tensor
from offcert.questions.schedule.problem import Problem
from offcert.verification.ends.sides import link_rate, ticks_of
from offcert.verification.limits import TooLargeError
from offcert.verification.outward.view import Tables

# The largest number in the arrays. Derived: it stays inside 64 bits.
_LARGEST = 2**62
# Front: tensors return when they are offloaded, in reversed time. Back: when they are prefetched.
_KINDS = ((Kind.OFFLOAD, Kind.PREFETCH), (Kind.PREFETCH, Kind.OFFLOAD))


@dataclass(frozen=True)
class Cut:
    """A problem cut where the pivot starts.

    Attributes
    ----------
    need : int
        Bytes that must be out at the cut.
    sizes : tuple of int
        Bytes of the classes, increasing.
    most : tuple of int
        How many of each class may be out.
    sides : pair of Tables
        Front, in reversed time, and back.
    """

    need: int
    sizes: tuple[int, ...]
    most: tuple[int, ...]
    sides: tuple[Tables, Tables]

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
        """For each side the least ticks in which a byte goes away and comes back."""
        return [
            sum((Fraction(int(ticks), int(size)) for size, ticks in rates), Fraction(0))
            for rates in [(side.back_rate, side.away_rate) for side in self.sides]
        ]


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

    Parameters
    ----------
    problem : Problem
        Atomic transfers, simplex link.
    pivot : int
        An operation.
    free_below : int
        Bytes. Smaller tensors, and those with several gaps, are absent whenever they may be.

    Raises
    ------
    TooLargeError
        If a number might not fit into 64 bits.
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
        twice=min(compress(trips, counts), default=_LARGEST // 2),
        back_rate=_array(link_rate(problem, kinds[0], volume)),
        away_rate=_array(link_rate(problem, kinds[1], volume)),
        movables=_array(
            [(sizes.index(movable.size), movable.due, movable.close) for movable in longest]
        ).reshape(-1, 3),
        worth=_worth(members, len(order)),
        radix=radix,
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
