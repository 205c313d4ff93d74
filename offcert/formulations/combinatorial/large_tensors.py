"""Bounds where tensors are whole: large ones, and such as must be away and back at once.

The sizes of a network's large tensors are multiples of few numbers, and there are so many small
ones that they make up any amount between two sums of large ones. So little is lost if small tensors
count byte by byte, like sand. What the large ones can make up is then a small table, in units of
their greatest common divisor, for each operation of a trace of thousands.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import accumulate

from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.core.result import Bound
from offcert.core.trace import Tensor, Trace
from offcert.formulations.combinatorial.relaxations import (
    heads_and_tails,
    required_absent,
    subset_sums,
)
from offcert.proofs.kinds.computed import LargeTensors
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Problem, Transfers


def forced_returns(problem: Problem) -> list[int]:
    """Return the gaps whose prefetches must lie between two operations.

    Each is the last one of several that its tensor has.
    """
    trace, platform = problem.trace, problem.platform
    if platform.duplex or problem.transfers is not Transfers.ATOMIC:
        return []
    last = {gap.tensor: number for number, gap in enumerate(trace.gaps)}
    first = {gap.tensor: number for number, gap in reversed(list(enumerate(trace.gaps)))}
    return [
        number
        for tensor, number in last.items()
        if number > first[tensor]
        and trace.least_demand[trace.gaps[number].after - 1] + trace.gap_size(number)
        > platform.memory
    ]


def without_forced_returns(problem: Problem) -> tuple[Problem, int]:
    """Return the problem without forced returns, and the ticks that they take.

    Raises
    ------
    MethodError
        If there are none.
    """
    forced = forced_returns(problem)
    if not forced:
        raise MethodError("no tensor has to return between an operation and the next one")
    trace = problem.trace
    tensors = list(trace.tensors)
    ticks = 0
    for number in forced:
        gap = trace.gaps[number]
        whole = tensors[gap.tensor]
        ticks += problem.platform.transfer_time(whole.size, Kind.PREFETCH)
        returned = tuple(use for use in whole.uses if use >= gap.after)
        tensors.append(Tensor(f"{whole.name}, returned", whole.size, returned, evictable=False))
        kept = tuple(use for use in whole.uses if use <= gap.before)
        tensors[gap.tensor] = replace(whole, uses=kept)
    return replace(problem, network=Trace(trace.operations, tensors)), ticks


METHOD = "fractional-large-tensors"

# Bits of a table times sizes times operations, at most: a fifth of a second, measured without a
# record. Units that sums are told apart in, at most, as in verification. Thresholds that are tried;
# arbitrary.
_MOST_WORK = 1 << 34
_MOST_UNITS = 1 << 26
_MOST_TRIED = 3


def sizes_worth_counting(problem: Problem) -> list[int]:
    """Return thresholds from which on a tensor counts as large, promising ones first.

    The fewer tensors count as sand, the better the bound; but a few small tensors of odd sizes make
    the tables long.
    """
    sizes = sorted(problem.trace.gap_sizes, reverse=True)
    work = len(problem.trace) * max(1, len(set(sizes)))
    most = min(_MOST_UNITS, _MOST_WORK // work)
    units = accumulate(sizes, math.gcd)
    found: dict[int, int] = {}
    for size, unit, total in zip(sizes, units, accumulate(sizes), strict=True):
        # Among sizes with the same unit, the least gives the best bound.
        if total <= most * unit:
            found[unit] = size
    return list(found.values())[::-1][:_MOST_TRIED]


def required_of_large(problem: Problem, smallest: int) -> list[int]:
    """Return the bytes that must be absent, where tensors of at least a size are absent as a whole.

    Parameters
    ----------
    problem : Problem
        A feasible one, with atomic transfers.
    smallest : int
        Bytes; tensors of less count byte by byte.
    """
    trace = problem.trace
    needs = required_absent(problem)
    sizes = trace.gap_sizes
    large: Counter[int] = Counter()
    sand = 0
    unit = math.gcd(*(size for size in sizes if size >= smallest)) or 1
    known: dict[int, int] = {}
    sums = None
    for operation, need in enumerate(needs):
        changes = [(gap, -1) for gap in trace.gaps_leaving[operation]]
        changes += [(gap, 1) for gap in trace.gaps_entering[operation]]
        for gap, change in changes:
            if sizes[gap] >= smallest:
                large[sizes[gap] // unit] += change
                sums = None
            else:
                sand += change * sizes[gap]
        if need <= sand:
            continue
        if sums is None:
            sums, known = subset_sums(large), {}
        units = -(-(need - sand) // unit)
        if units not in known:
            above = sums >> units
            known[units] = units + (above & -above).bit_length() - 1
        needs[operation] = max(need, known[units] * unit)
    return needs


def large_tensors_bound(problem: Problem, smallest: int) -> Bound:
    """Return the largest head plus tail with large tensors whole; only for atomic transfers.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    smallest : int
        Bytes that a tensor has at least if it counts as a whole.
    """
    times = heads_and_tails(problem, required_of_large(problem, smallest))
    return proved(METHOD, times.bound, LargeTensors(smallest=smallest))
