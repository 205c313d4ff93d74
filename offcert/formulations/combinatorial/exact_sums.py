"""The fractional bound, sum by sum: what is absent at the turn, exactly, and when it must return.

What whole tensors make up at the operation that needs most is one of few sums where sizes repeat.
A sum may only be possible with a tensor that is written late or needed soon, and then some bytes
have to move just before or just after that operation; the next sum may do without, but moves more.
Either costs time that the fractional bound, which asks how much is absent but not what, cannot see.

Let ``s`` be the bytes of what is absent during the pivot. Those of them that must be back before a
later operation ``o`` are at least the least ``e`` for which tensors that are needed by then make up
``e``, and the others the rest of ``s``. They return between the pivot's end and the start of ``o``.
The same holds for those that are written by an earlier operation or later. No schedule is shorter
than the least over all sums of the longest of these ways; sums are gone through in increasing order
until the fractional bound with that sum, which grows with it, is no less. Small tensors, of which
there may be many of odd sizes, count byte by byte, and wherever that is best.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.result import Bound
from offcert.formulations.combinatorial.large_tensors import required_of_large
from offcert.formulations.combinatorial.relaxations import heads_and_tails
from offcert.proofs.claims import proved
from offcert.proofs.kinds import ExactSums

METHOD = "exact-sums"

# Sums that are looked at, and units that are told apart times tensors times operations.
_MOST_SUMS = 200
_MOST_WORK = 1 << 28


@dataclass(frozen=True)
class _Parting:
    """Sums of the tensors that must move between an operation and the pivot, and of the others.

    `rest` are ticks of what is before, or after, the moves; `others` has bit ``total - k`` where
    they make ``k`` units.
    """

    rest: Fraction
    near: int
    others: int


def exact_sums_bound(problem: Problem, smallest: int = 1) -> Bound | None:
    """Return the bound at the operation that needs most, or None if there are too many sums.

    Parameters
    ----------
    problem : Problem
        A feasible one with atomic transfers.
    smallest : int
        Bytes; tensors of less count byte by byte.
    """
    trace = problem.trace
    required = required_of_large(problem, smallest)
    pivot = max(range(len(trace)), key=required.__getitem__)
    over = [gap for gap in range(len(trace.gaps)) if trace.gaps[gap].spans(pivot)]
    large = [gap for gap in over if trace.gap_size(gap) >= smallest]
    if not large or not required[pivot]:
        return None
    unit = math.gcd(*(trace.gap_size(gap) for gap in large))
    units = {gap: trace.gap_size(gap) // unit for gap in large}
    if sum(units.values()) * len(large) ** 2 > _MOST_WORK:
        return None
    sand = sum(trace.gap_size(gap) for gap in over) - sum(units.values()) * unit
    least = max(0, trace.demand[pivot] - problem.platform.memory - sand)
    value = _least_over_sums(problem, required, pivot, unit, units, -(-least // unit))
    return proved(METHOD, value, ExactSums(pivot=pivot, smallest=smallest))


def _least_over_sums(
    problem: Problem, required: list[int], pivot: int, unit: int, units: dict[int, int], least: int
) -> int:
    trace = problem.trace
    total = sum(units.values())
    times = heads_and_tails(problem, required)
    durations = trace.durations
    writers = {gap: trace.tensors[trace.gaps[gap].tensor].uses[0] for gap in units}
    closers = {gap: trace.gaps[gap].after for gap in units}
    before = [
        _parting(units, times.heads[o] + durations[o], {gap for gap in units if writers[gap] >= o})
        for o in sorted(set(writers.values()))
        if o >= 0
    ]
    after = [
        _parting(units, times.tails[o], {gap for gap in units if closers[gap] <= o})
        for o in sorted(set(closers.values()))
    ]
    out, back = (unit / problem.platform.rate(kind) for kind in Kind)
    best: int | None = None
    amounts = list(required)
    for looked_at, amount in enumerate(_sums(units.values(), least)):
        amounts[pivot] = max(required[pivot], amount * unit)
        times = heads_and_tails(problem, amounts)
        head, tail = times.heads[pivot], times.tails[pivot]
        fractional = math.ceil(head + tail)
        if looked_at == _MOST_SUMS or (best is not None and fractional >= best):
            return fractional if best is None else min(best, fractional)
        head = max([head, *(part.rest + out * _near(part, amount, total) for part in before)])
        tails = (part.rest + back * _near(part, amount, total) for part in after)
        tail = max([tail, *(durations[pivot] + longest for longest in tails)])
        longest = math.ceil(head + tail)
        best = longest if best is None else min(best, longest)
    assert best is not None
    return best


def _parting(units: dict[int, int], rest: Fraction, moving: Collection[int]) -> _Parting:
    total = sum(units.values())
    near = _table(size for gap, size in units.items() if gap in moving)
    others = _table(size for gap, size in units.items() if gap not in moving)
    mirrored = int(format(others, f"0{total + 1}b")[::-1], 2)
    return _Parting(rest, near, mirrored)


def _near(part: _Parting, amount: int, total: int) -> int:
    """Return the least units of the near ones that others complete to an amount."""
    possible = part.near & (part.others >> (total - amount))
    return (possible & -possible).bit_length() - 1


def _table(sizes: Iterable[int]) -> int:
    sums = 1
    for size in sizes:
        sums |= sums << size
    return sums


def _sums(sizes: Iterable[int], least: int) -> Iterator[int]:
    """Yield the sums of subsets, increasing, from one on."""
    sums = _table(sizes) >> least
    while sums:
        low = sums & -sums
        yield least + low.bit_length() - 1
        sums ^= low
