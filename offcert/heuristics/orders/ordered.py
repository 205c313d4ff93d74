"""The makespans of many sets of gaps on one problem, each as its ordered, no-wait schedule."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.heuristics.orders.ordered_kernel import (
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
    OrderedArrays,
    split_makespan,
)
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer


def leaving_again(trace: Trace, gaps: Iterable[int]) -> set[int]:
    """Return those of some gaps whose tensor has an earlier one among them."""
    chosen = set(gaps)
    return chosen.difference(trace.first_gaps(chosen).values())


def later_gaps(trace: Trace, gaps: Iterable[int]) -> dict[int, int]:
    """Return the later gaps of the tensors of some gaps, and for each the gap that it follows."""
    chosen = {trace.gaps[gap].tensor: gap for gap in gaps}
    return {
        number: chosen[gap.tensor]
        for number, gap in enumerate(trace.gaps)
        if gap.tensor in chosen and chosen[gap.tensor] < number
    }


def lacking(problem: Problem) -> list[int]:
    """Return for each operation the bytes that do not fit if nothing ever leaves."""
    return [max(0, demand - problem.platform.memory) for demand in problem.trace.demand]


def needed_again(
    trace: Trace, required: Sequence[int], gaps: Iterable[int], later: Iterable[int]
) -> list[int]:
    """Return later gaps, of few bytes, that must be evicted even if all other gaps are."""
    missing = list(required)
    sizes = trace.gap_sizes
    for number in gaps:
        gap = trace.gaps[number]
        for operation in range(gap.before + 1, gap.after):
            missing[operation] -= sizes[number]
    over: dict[int, list[int]] = defaultdict(list)
    for number in later:
        gap = trace.gaps[number]
        for operation in range(gap.before + 1, gap.after):
            over[operation].append(number)
    needed: set[int] = set()
    for operation in sorted(over):
        rest = missing[operation] - sum(sizes[gap] for gap in over[operation] if gap in needed)
        others = sorted(set(over[operation]) - needed, key=lambda gap: (sizes[gap], gap))
        while rest > 0 and others:
            # The smallest that is enough alone, or else the largest.
            enough = next((gap for gap in others if sizes[gap] >= rest), others[-1])
            others.remove(enough)
            needed.add(enough)
            rest -= sizes[enough]
    return sorted(needed)


def ordered_orders(problem: Problem, evicted: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the orders of the offloading paper's ordered schedules (§4.1) for a set of gaps."""
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
    """Return the ordered plan that evicts a set of gaps; a `MethodError` says there is none."""
    return ordered_schedule(problem, *ordered_orders(problem, evicted)).plan(problem.trace)


def ordered_schedule(
    problem: Problem, offload_order: Sequence[int], prefetch_order: Sequence[int]
) -> Schedule:
    """Return the best schedule with all offloads before all prefetches, both in given orders.

    A `MethodError` says that there is none.
    """
    _require_orders(problem, offload_order, prefetch_order)
    again = leaving_again(problem.trace, offload_order)
    arrays = OrderedArrays(problem, again)
    scratch = arrays.scratch()
    makespan = arrays.makespan(offload_order, prefetch_order, scratch)
    if makespan == INFEASIBLE:
        raise MethodError(_obstacle(problem, offload_order))
    offloads = np.array(offload_order, dtype=np.int64)
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
    arrays: OrderedArrays, order: IntArray, scratch: IntArray, makespan: int
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


class OrderedSets:
    """Evaluates sets as `ordered.ordered_makespan` does, with the problem's arrays built once.

    A `MethodError` names who asks, and says that a tensor has several gaps or that no plan of any
    kind exists at this memory limit.
    """

    def __init__(self, problem: Problem, method: str) -> None:
        require_single_gaps(problem, method)
        require_possible(problem)
        self._problem = problem
        self._arrays = OrderedArrays(problem)
        self._known: dict[frozenset[int], int | None] = {}

    def makespan(self, evicted: Iterable[int]) -> int | None:
        """Return the least makespan of an ordered schedule in ticks, or None if there is none."""
        chosen = frozenset(evicted)
        if chosen not in self._known:
            value = self._arrays.makespan(*ordered_orders(self._problem, chosen))
            self._known[chosen] = None if value == INFEASIBLE else value
        return self._known[chosen]


def require_single_gaps(problem: Problem, method: str) -> None:
    """Raise `MethodError` if some tensor of the trace has several gaps."""
    trace = problem.trace
    if len({gap.tensor for gap in trace.gaps}) < len(trace.gaps):
        raise MethodError(f"{method} needs a trace in which every tensor has at most one gap")


def require_possible(problem: Problem) -> None:
    """Raise `MethodError` if no plan of any kind exists at this memory limit."""
    least, memory = problem.trace.least_memory, problem.platform.memory
    if least > memory:
        raise MethodError(
            f"no plan exists below {least} bytes of memory, and the limit is {memory}"
        )
