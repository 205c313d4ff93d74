"""The data of both sides of an operation, the *pivot*, from which schedules are followed outward.

The *back* is the pivot and all that comes after it; the *front* is what comes before it, in
reversed time, so that both begin at the cut and lead away from it. On either side all of `O`, the
tensors that are out at the cut, has to *return*, and the side's operations run one after the other
while it does; a tensor that is in may also *leave* and return again. In the back the same tensors
can be absent while an operation runs and out when it starts. In the front more may be out: a tensor
may be on its way to the host while operations still read it, but not before it is written.

Tensors below a certain size, and such with several gaps, are *free*: absent whenever they may be,
at no cost. All others are told apart by their size alone, in *classes*. docs/theory/outward.md has
the argument, with an example on paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.core.trace import Gap, Trace
from offcert.formulations.labels.ends.side import link_rate
from offcert.questions.schedule.problem import Problem, Transfers

# Bytes, fewer than any need. By definition.
NOTHING = -(2**62)
# Tensors of fewer bytes than the pivot's need over this are small. Arbitrary.
SMALL = 4096
# Parts into which a tick is divided where a byte's time is rounded, and a bound on all numbers, so
# that sums stay inside 64 bits. Derived.
PARTS = 2**20
_LARGEST = 2**61


class OutwardSide(NamedTuple):
    """One side of the cut as arrays: ``K`` operations in the order outward, ``C`` classes.

    ``need`` (K) are bytes that must be absent during an operation, ``later_need`` (K+1) the most
    that any operation from one on needs; ``prefix`` (K+1) sums of durations; ``out`` and ``absent``
    (C, K) how many of a class may be out when an operation starts, and absent while it runs;
    ``here`` (C) how many may be out on this side at all. ``size`` (C) are bytes, ``back`` and
    ``away`` (C) the ticks of a return and of a departure, ``rates`` (4) numerator and denominator
    of the bytes a tick, first for returns. ``both_ways`` (1) are the ticks that the link back loses
    if a byte leaves and returns, in `PARTS` of one, rounded down. ``urgent`` (C, R) is larger for
    tensors that have to be back sooner, by rank.
    ``item_class``, ``item_due`` and ``item_closes`` (I) list the tensors that may be out, those
    first that may stay out longest, with the operations before which they must be back and from
    which on they cannot be absent. ``shared`` says whether returns and departures take turns on
    the link; ``largest`` are the bytes of the largest tensor that may be out.
    """

    need: IntArray
    later_need: IntArray
    prefix: IntArray
    out: IntArray
    absent: IntArray
    here: IntArray
    size: IntArray
    back: IntArray
    away: IntArray
    rates: IntArray
    both_ways: IntArray
    urgent: IntArray
    item_class: IntArray
    item_due: IntArray
    item_closes: IntArray
    shared: bool
    largest: int


@dataclass(frozen=True)
class CutProblem:
    """A problem cut at an operation."""

    problem: Problem  # Atomic transfers.
    operation: int  # The pivot.
    free_below: int  # Bytes: smaller tensors are free.
    need: int  # Bytes of counted tensors that must be absent during the pivot.
    sizes: tuple[int, ...]  # Of the classes, in bytes, increasing.
    most: tuple[int, ...]  # How many of each class may be out at the cut.
    # For front and back the gaps of each class that may be out there, those first that may stay out
    # longest.
    members: tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
    sides: tuple[OutwardSide, OutwardSide]  # Front and back.

    @property
    def shared(self) -> bool:
        """Whether both directions share the link."""
        return not self.problem.platform.duplex

    @cached_property
    def a_byte(self) -> list[Fraction]:
        """For each side the least ticks that its link back loses if a byte leaves and returns."""
        return [
            _inverse(side.rates[:2]) + (_inverse(side.rates[2:]) if self.shared else 0)
            for side in self.sides
        ]

    @cached_property
    def a_byte_out(self) -> Fraction:
        """The least ticks that a byte of `O` takes to return on both sides."""
        front, back = self.sides
        return _inverse(front.rates[:2]) + _inverse(back.rates[:2])

    @cached_property
    def movable(self) -> list[tuple[int, int]]:
        """For each side the bytes of the smallest tensor that may be out there, and of all."""
        found = []
        for side in self.sides:
            here = [(size, int(n)) for size, n in zip(self.sizes, side.here, strict=True) if n]
            found.append((min((size for size, _ in here), default=0), sum(a * n for a, n in here)))
        return found


def _inverse(rate: IntArray) -> Fraction:
    return Fraction(int(rate[1]), int(rate[0]))


def cut(problem: Problem, operation: int, free_below: int) -> CutProblem:
    """Return the numbers of both sides of an operation of a feasible problem.

    Tensors of fewer bytes than `free_below` are free, as are those of no bytes.

    Raises
    ------
    MethodError
        If transfers are not atomic, no counted tensor must be absent during the pivot, or numbers
        are so large that sums of them might not fit into 64 bits.
    """
    if problem.transfers is not Transfers.ATOMIC:
        raise MethodError(f"the outward search needs atomic transfers, not {problem.transfers}")
    trace = problem.trace
    counted = _counted(trace, free_below)
    needs = needs_of(problem, counted)
    if needs[operation] <= 0:
        raise MethodError(f"no tensor has to be absent during operation {operation}")
    sizes = tuple(sorted({trace.gap_size(gap) for gap in counted}))
    front, back = (_members(trace, counted, sizes, operation, before) for before in (True, False))
    most = tuple(
        sum(_writer(trace, gap) < operation < trace.gaps[gap].after for gap in gaps)
        for gaps in front
    )
    sides = (
        _side(problem, needs, sizes, front, range(operation - 1, -1, -1)),
        _side(problem, needs, sizes, back, range(operation, len(trace))),
    )
    if max(map(_largest, sides)) >= _LARGEST:
        raise MethodError("the numbers are too large for the outward search")
    return CutProblem(
        problem, operation, free_below, needs[operation], sizes, most, (front, back), sides
    )


def needs_of(problem: Problem, counted: Iterable[int]) -> list[int]:
    """Return the bytes of counted gaps that each operation needs absent; less than 1 if none."""
    trace = problem.trace
    needs = [demand - problem.platform.memory for demand in trace.demand]
    for gap in set(range(len(trace.gaps))).difference(counted):
        for operation in range(trace.gaps[gap].before + 1, trace.gaps[gap].after):
            needs[operation] -= trace.gap_size(gap)
    return needs


def levels_of(problem: Problem, need: int) -> tuple[int, ...]:
    """Return the sizes in bytes from which tensors count, at first and in the end."""
    sizes = [problem.trace.gap_size(gap) for gap in range(len(problem.trace.gaps))]
    large = min((size for size in sizes if size >= need // SMALL), default=1)
    return (large, 1) if large > min(sizes, default=large) else (1,)


def _largest(side: OutwardSide) -> int:
    """Return an upper limit of every time and amount on a side, sums of them included."""
    pairs = list(zip(side.here.tolist(), (side.back + side.away).tolist(), strict=True))
    times = int(side.prefix[-1]) + sum((here + 1) * both for here, both in pairs)
    volume = sum(
        here * size for here, size in zip(side.here.tolist(), side.size.tolist(), strict=True)
    )
    return max(4 * times, 2 * volume + int(max(side.later_need[0], 0)))


def _counted(trace: Trace, free_below: int) -> list[int]:
    gaps = Counter(gap.tensor for gap in trace.gaps)
    return [
        index
        for index, gap in enumerate(trace.gaps)
        if gaps[gap.tensor] == 1 and trace.gap_size(index) >= max(1, free_below)
    ]


def _writer(trace: Trace, gap: int) -> int:
    return trace.tensors[trace.gaps[gap].tensor].uses[0]


def _members(
    trace: Trace, counted: Sequence[int], sizes: Sequence[int], pivot: int, before: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the gaps of each class that may be out on a side, outermost first."""

    def outermost(gap: int) -> tuple[int, int, int]:
        writer, after = _writer(trace, gap), -trace.gaps[gap].after
        return (writer, after, gap) if before else (after, writer, gap)

    here = [
        gap
        for gap in counted
        if (_writer(trace, gap) < pivot if before else trace.gaps[gap].after > pivot)
    ]
    here.sort(key=outermost)
    return tuple(tuple(gap for gap in here if trace.gap_size(gap) == size) for size in sizes)


def _side(
    problem: Problem,
    needs: Sequence[int],
    sizes: Sequence[int],
    members: Sequence[Sequence[int]],
    operations: range,
) -> OutwardSide:
    trace, front, shared = problem.trace, operations.step < 0, not problem.platform.duplex

    def closes(gap: Gap) -> int:
        """The operation outward that the tensor's gap is no longer over."""
        return operations.start - gap.before if front else gap.after - operations.start

    def due(gap: Gap) -> int:
        """The operation outward before which the tensor must be back."""
        if front:
            return operations.start - trace.tensors[gap.tensor].uses[0]
        return gap.after - operations.start

    gaps = [[trace.gaps[gap] for gap in listed] for listed in members]
    columns = np.arange(len(operations))
    out, absent = (
        np.array([_later(map(place, listed), columns) for listed in gaps], np.int64).reshape(
            len(sizes), len(columns)
        )
        for place in (due, closes)
    )
    need = np.array([needs[operation] for operation in operations], np.int64)
    later = np.maximum.accumulate(np.append(need, NOTHING)[::-1])[::-1]
    kinds = (Kind.OFFLOAD, Kind.PREFETCH) if front else (Kind.PREFETCH, Kind.OFFLOAD)
    ticks = [
        np.array([problem.platform.transfer_time(size, kind) for size in sizes], np.int64)
        for kind in kinds
    ]
    items = sorted(
        ((due(gap), closes(gap), c) for c, listed in enumerate(gaps) for gap in listed),
        reverse=True,
    )
    rates = [problem.platform.rate(kind) for kind in kinds]
    most = int(max(later[0], 0)) + sum(sum(map(trace.gap_size, listed)) for listed in members)
    return OutwardSide(
        need=need,
        later_need=later,
        prefix=np.cumsum([0, *(trace.durations[operation] for operation in operations)]),
        out=out,
        absent=absent,
        here=np.array([len(listed) for listed in gaps], np.int64),
        size=np.array(sizes, np.int64),
        back=ticks[0],
        away=ticks[1],
        item_class=np.array([c for _, _, c in items], np.int64),
        item_due=np.array([due for due, _, _ in items], np.int64),
        item_closes=np.array([closes for _, closes, _ in items], np.int64),
        urgent=_urgency(sizes, [[due(gap) for gap in listed] for listed in gaps], len(columns)),
        both_ways=np.array([_both_ways(rates[: 1 + shared], most)], np.int64),
        shared=shared,
        largest=max(compress(sizes, map(len, gaps)), default=0),
        rates=np.array([*link_rate(rates[0], most), *link_rate(rates[1], most)], np.int64),
    )


def _both_ways(rates: Sequence[Fraction], most: int) -> int:
    """Return parts of a tick a byte, rounded down; `most` bytes must fit into 62 bits."""
    exact = sum(1 / rate for rate in rates)
    return min(int(exact * PARTS), 2**62 // max(1, most))


def _urgency(sizes: Sequence[int], due: Sequence[Sequence[int]], last: int) -> IntArray:
    """Return the bytes of tensors times the operations that come after they have to be back."""
    most = max((len(listed) for listed in due), default=0)
    urgent = np.zeros((len(sizes), max(1, most)), np.int64)
    for c, listed in enumerate(due):
        # Small numbers: this only tells which of equally good labels comes first.
        share = -(-sizes[c] * 1000 // max(sizes))
        for rank, place in enumerate(listed):
            urgent[c, rank] = share * (last + 1 - min(place, last))
    return urgent


def _later(places: Iterable[int], columns: IntArray) -> IntArray:
    """Return how many of the places come after each column."""
    return (np.array(list(places), np.int64)[:, None] > columns[None, :]).sum(axis=0)
