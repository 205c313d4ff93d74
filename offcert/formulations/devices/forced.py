"""Transfers that the memory of a device forces: multipliers from a linear program.

At every operation enough must be absent. Choosing the cheapest gaps for that is a covering problem;
the duals of its relaxation price a byte that must be absent at an operation, and any prices give a
bound that holds for whole tensors (docs/theory/several-gpus.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from scipy.sparse import coo_array

from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.formulations.common.highs import run_highs

# Bits of the largest multiplier.
_BITS = 40


def lacking(problem: Problem) -> dict[int, int]:
    """Return, for each operation that does not fit beside everything else, the bytes too many."""
    memory = problem.platform.memory
    return {
        operation: demand - memory
        for operation, demand in enumerate(problem.trace.demand)
        if demand > memory
    }


def multipliers(
    problem: Problem, kinds: frozenset[Kind], time_limit: float = 10.0
) -> dict[int, Fraction]:
    """Return prices of bytes that must be absent, in ticks of transfers in some directions.

    Parameters
    ----------
    problem : Problem
        One device's.
    kinds : set of Kind
        The directions whose ticks count.
    time_limit : float
        Seconds.

    Returns
    -------
    dict
        By operation; empty if nothing is forced or no prices were found in time.
    """
    missing = lacking(problem)
    trace = problem.trace
    if not missing or not trace.gaps:
        return {}
    rows = sorted(missing)
    entries: list[tuple[float, int, int]] = []
    tensors = sorted({gap.tensor for gap in trace.gaps})
    column = {tensor: len(trace.gaps) + index for index, tensor in enumerate(tensors)}
    for row, operation in enumerate(rows):
        for gap in trace.gaps_over[operation]:
            entries.append((-float(min(trace.gap_size(gap), missing[operation])), row, gap))
    for number, each in enumerate(trace.gaps):
        # What is evicted has been offloaded.
        entries += [
            (1.0, len(rows) + number, number),
            (-1.0, len(rows) + number, column[each.tensor]),
        ]
    values, places, columns = zip(*entries, strict=True)
    shape = (len(rows) + len(trace.gaps), len(trace.gaps) + len(tensors))
    cost = _costs(problem, kinds, tensors)
    limits = [-float(missing[operation]) for operation in rows] + [0.0] * len(trace.gaps)
    answer = run_highs(
        "linprog",
        time_limit,
        c=cost,
        A_ub=coo_array((values, (places, columns)), shape=shape).tocsr(),
        b_ub=limits,
        bounds=(0.0, 1.0),
        method="highs",
        options={"time_limit": time_limit},
    )
    if answer.x is None or answer.status != 0:
        return {}
    duals = -np.asarray(answer.ineqlin.marginals)[: len(rows)]
    return _rational({operation: float(y) for operation, y in zip(rows, duals, strict=True)})


def _costs(problem: Problem, kinds: frozenset[Kind], tensors: list[int]) -> list[float]:
    trace, platform = problem.trace, problem.platform
    back = [
        platform.transfer_time(size, Kind.PREFETCH) if Kind.PREFETCH in kinds else 0
        for size in trace.gap_sizes
    ]
    out = [
        platform.transfer_time(trace.tensors[tensor].size, Kind.OFFLOAD)
        if Kind.OFFLOAD in kinds
        else 0
        for tensor in tensors
    ]
    return [float(ticks) for ticks in back + out]


def _rational(prices: Mapping[int, float]) -> dict[int, Fraction]:
    most = max(prices.values(), default=0.0)
    if most <= 0:
        return {}
    scale = 2 ** max(0, _BITS - Fraction(most).__ceil__().bit_length())
    found = {operation: Fraction(int(y * scale), scale) for operation, y in prices.items()}
    return {operation: y for operation, y in found.items() if y > 0}


def priced_ticks(
    problem: Problem, kinds: frozenset[Kind], prices: Mapping[int, Fraction]
) -> Fraction:
    """Return the ticks of transfers that prices prove for one device; 0 at least."""
    trace, platform = problem.trace, problem.platform
    missing = lacking(problem)
    useful = {operation: y for operation, y in prices.items() if operation in missing}
    total = sum((y * missing[operation] for operation, y in useful.items()), Fraction(0))
    saved: dict[int, Fraction] = {}
    for gap, size in zip(trace.gaps, trace.gap_sizes, strict=True):
        worth = sum(
            (y * min(size, missing[o]) for o, y in useful.items() if gap.spans(o)), Fraction(0)
        )
        ticks = platform.transfer_time(size, Kind.PREFETCH) if Kind.PREFETCH in kinds else 0
        if worth > ticks:
            saved[gap.tensor] = saved.get(gap.tensor, Fraction(0)) + worth - ticks
    for tensor, worth in saved.items():
        ticks = 0
        if Kind.OFFLOAD in kinds:
            ticks = platform.transfer_time(trace.tensors[tensor].size, Kind.OFFLOAD)
        total -= max(Fraction(0), worth - ticks)
    return max(total, Fraction(0))
