"""Ordered schedules: every offload comes before every prefetch, both in given orders.

The result is exact and needs no event queue. Let ``f_o`` be the earliest start of operation ``o``
if only the offloads happen, one after the other and as early as possible; let ``g_o`` be the least
time from the start of ``o`` to the end of everything if only the prefetches happen, which is the
same problem in reversed time (a prefetch "becomes possible" at the reversed end of ``after`` and
"releases" its memory at its reversed end). Let ``t_f`` and ``t_b`` be the times at which the link
is free in the two problems. Then the least makespan on a simplex link is

    ``T = max(t_f + t_b, max_o (f_o + g_o))``.

*No schedule is shorter.* Dropping all prefetches of a schedule leaves one of the front problem, and
in that the earliest start of every operation and transfer is no-wait, by induction over the fixed
orders; so ``s_o >= f_o``, and the mirror image gives ``T - s_o >= g_o``. All offloads precede all
prefetches, which gives the first term.

*One of length T exists.* Put the offloads where the front has them and the prefetches at ``T``
minus their reversed times. At any instant either no prefetch has started, and the absent tensors
are those of the front, or every offload has ended, and they are those of the back. In the front
the absent set only grows, in the back it only shrinks, so any start in ``[f_o, T - g_o]`` meets
the memory constraint of ``o``, during its run as well as in the idle time next to it. Operations
that write an offloaded tensor run at ``f_o``, those that need one back at ``T - g_o``.

A tensor's memory is released once its offload *and* operation ``before`` have ended. Only
operations after ``before`` can count it as absent, so the front need not look at that; the back
must: ``before`` has to end before the prefetch starts, and this is part of ``g``.

Running the prefetches as late as possible is essential: an order of transfers alone does not say
when a prefetch may take its memory, and an eager one delays operations or blocks them (Prop. 1 of
the offloading paper needs this reading).

*Tensors that leave again.* A tensor that has come back may leave again without an offload. In the
front such a gap opens after the offload of the first one, and takes the link no time; in the back
its prefetch is one more, before which ``before`` has to end, as for any other. As every offload
precedes every prefetch, and thereby ``before``, nothing else changes.

*Duplex link.* Offloads and prefetches may then overlap in time, where the absent set is the front's
and the back's in common. We keep operations that need memory out of the overlap: those before some
split end by ``T - t_b`` and the others start at ``t_f`` or later. A tensor's prefetch starts after
its own offload has ended. The first term becomes the least of ``t_f + t_b`` and, over the splits,
``max(end of the last front operation + t_b, t_f + g of the first back one)``, and the largest sum
of a tensor's offload end and reversed prefetch end is a further term.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from offcert.core.errors import MethodError
from offcert.core.plan import Kind, Plan
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule, Transfer
from offcert.heuristics.ordered_kernel import (
    AFTER,
    BACK_IDLE,
    BEFORE,
    CLOSES,
    COMPUTE,
    FRONT_IDLE,
    INFEASIBLE,
    LINK,
    MAY_SPLIT,
    OFFLOAD,
    OFFLOAD_END,
    PREFETCH,
    PREFETCH_END,
    READ,
    WRITER_KEY,
    Integers,
    OrderedArrays,
    evaluate_ordered,
    split_makespan,
)
from offcert.heuristics.returning import leaving_again


def ordered_orders(problem: Problem, evicted: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the orders of the offloading paper's ordered schedules (§4.1) for a set of gaps.

    Returns
    -------
    offload_order : list of int
        By increasing ``before``, then writer.
    prefetch_order : list of int
        By increasing ``after``: needed first, back first; equal ones mirror the offloads.
    """
    trace = problem.trace

    def availability(number: int) -> tuple[int, int, int]:
        gap = trace.gaps[number]
        return gap.before, trace.tensors[gap.tensor].uses[0], number

    offload_order = sorted(set(evicted), key=availability)
    mirrored = offload_order[::-1]
    prefetch_order = sorted(mirrored, key=lambda number: trace.gaps[number].after)
    return offload_order, prefetch_order


def ordered_makespan(problem: Problem, evicted: Iterable[int]) -> int | None:
    """Return the makespan of `ordered_plan` in ticks, or None where that raises MethodError."""
    orders = ordered_orders(problem, evicted)
    try:
        again = leaving_again(problem.trace, orders[0])
        makespan = OrderedArrays(problem, again).makespan(*orders)
    except MethodError:
        return None
    return None if makespan == INFEASIBLE else makespan


def ordered_plan(problem: Problem, evicted: Iterable[int]) -> Plan:
    """Return the ordered plan that evicts a set of gaps.

    Parameters
    ----------
    problem : Problem
        Any trace.
    evicted : iterable of int
        Gap numbers.

    Returns
    -------
    Plan
        Its prefetches take their memory as late as the best ordered schedule allows.

    Raises
    ------
    MethodError
        If no ordered schedule evicts exactly these gaps.
    """
    return ordered_schedule(problem, *ordered_orders(problem, evicted)).plan(problem.trace)


def ordered_schedule(
    problem: Problem, offload_order: Sequence[int], prefetch_order: Sequence[int]
) -> Schedule:
    """Return the best schedule with all offloads before all prefetches, both in given orders.

    Parameters
    ----------
    problem : Problem
        Any trace.
    offload_order, prefetch_order : sequence of int
        The same gap numbers; those of one tensor in the order in which it has them.

    Raises
    ------
    MethodError
        If there is none, or the orders do not name the same gaps.
    """
    _require_orders(problem, offload_order, prefetch_order)
    again = leaving_again(problem.trace, offload_order)
    arrays = OrderedArrays(problem, again)
    scratch = arrays.scratch()
    offloads = np.array(offload_order, dtype=np.int64)
    prefetches = np.array(prefetch_order, dtype=np.int64)
    makespan = int(
        evaluate_ordered(arrays.keys, arrays.gaps, arrays.settings, offloads, prefetches, scratch)
    )
    if makespan == INFEASIBLE:
        raise MethodError(_obstacle(problem, offload_order))
    starts = _operation_starts(arrays, offloads, scratch, makespan)
    transfers = []
    for gap in offload_order:
        if gap in again:
            continue
        length, end = int(arrays.gaps[gap, OFFLOAD]), int(scratch[OFFLOAD_END, gap])
        transfers.append(Transfer(Kind.OFFLOAD, gap, end - length, end))
    for gap in prefetch_order:
        start = makespan - int(scratch[PREFETCH_END, gap])
        transfers.append(
            Transfer(Kind.PREFETCH, gap, start, start + int(arrays.gaps[gap, PREFETCH]))
        )
    durations = problem.trace.durations
    ends = [start + duration for start, duration in zip(starts, durations, strict=True)]
    return Schedule(starts, ends, transfers)


def _operation_starts(
    arrays: OrderedArrays, order: Integers, scratch: Integers, makespan: int
) -> list[int]:
    """Return ``f_o`` for operations before the split and ``T - g_o`` from there on."""
    keys, count = arrays.key_operations, len(arrays.elapsed) - 1
    chosen = arrays.gaps[order]
    split = int(chosen[:, AFTER].min()) if len(order) else count
    if scratch[LINK].sum() > makespan and len(order):
        compute = int(arrays.settings[COMPUTE])
        first, last = int(chosen[:, WRITER_KEY].max()) + 1, int(chosen[:, CLOSES].min())
        key = next(
            key
            for key in range(first, last + 1)
            if arrays.keys[key, MAY_SPLIT]
            and split_makespan(arrays.keys, compute, scratch, key) <= makespan
        )
        split = min(split, (*keys, count)[key - 1])
    starts = []
    for o in range(count):
        if o < split:
            starts.append(arrays.elapsed[o] + int(scratch[FRONT_IDLE, bisect_right(keys, o)]))
            continue
        idle = int(scratch[BACK_IDLE, bisect_left(keys, o) + 1])
        # Between keys, an operation that opens a gap still ends before that gap's prefetch starts.
        for gap in order[chosen[:, BEFORE] >= o]:
            idle = max(idle, int(scratch[PREFETCH_END, gap] - arrays.gaps[gap, READ]))
        starts.append(makespan - (arrays.elapsed[-1] - arrays.elapsed[o]) - idle)
    return starts


def _require_orders(problem: Problem, offloads: Sequence[int], prefetches: Sequence[int]) -> None:
    """Raise unless both orders name the same gaps, each once."""
    trace = problem.trace
    for gap in (*offloads, *prefetches):
        if not 0 <= gap < len(trace.gaps):
            raise MethodError(f"gap {gap} does not exist: the trace has {len(trace.gaps)}")
    if sorted(offloads) != sorted(prefetches):
        raise MethodError("the offload order and the prefetch order must name the same gaps")
    if len(set(offloads)) < len(offloads):
        raise MethodError("an ordered schedule evicts a gap at most once")


def _obstacle(problem: Problem, evicted: Iterable[int]) -> str:
    """Say why no ordered schedule evicts these gaps."""
    trace, memory = problem.trace, problem.platform.memory
    chosen = set(evicted)
    freed = 0
    for o, operation in enumerate(trace.operations):
        freed += sum(trace.gap_size(gap) for gap in trace.gaps_entering[o] if gap in chosen)
        freed -= sum(trace.gap_size(gap) for gap in trace.gaps_leaving[o] if gap in chosen)
        if trace.demand[o] - freed > memory:
            return (
                f"operation {operation.name} needs {trace.demand[o] - memory} bytes off the "
                f"device, and the chosen tensors free at most {freed} of them"
            )
    return "no schedule moves the chosen tensors in these orders with every offload first"
