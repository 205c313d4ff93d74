"""The compiled evaluator of ordered schedules; `ordered` derives what it computes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate

import numpy as np

from offcert.core.compiled import IntArray, inlined, inlined_and_entered
from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem

# Columns of `OrderedArrays.keys`. By definition.
REQUIRED, FRONT, BACK, MAY_SPLIT = 0, 1, 2, 3
# Columns of `OrderedArrays.gaps`.
SIZE, OFFLOAD, PREFETCH, OPENS, CLOSES, WRITER_KEY, WRITTEN, NEEDED, READ = range(9)
# Columns of `OrderedArrays.gaps`. By definition.
WRITER, BEFORE, AFTER = 9, 10, 11
# Entries of `OrderedArrays.settings`. By definition.
COMPUTE, DUPLEX, NESTED = 0, 1, 2
# Rows of the scratch array, and their number. By definition.
FRONT_IDLE, BACK_IDLE, OFFLOAD_END, PREFETCH_END, CHANGE, FLOOR, LINK = 0, 1, 2, 3, 4, 5, 6
SCRATCH_ROWS = 7

# The length of an order that cannot be carried out, and a time that never comes. By definition.
INFEASIBLE = -1
_NEVER = 2**62


class OrderedArrays:
    """A problem as the arrays that `evaluate_ordered` reads.

    Only *key* operations can make anything wait: those that need something off the device. Between
    them, time passes by sums of durations. (On traces that are not nested around a turn, operations
    that close a gap before another one opens are keys too.) Keys are numbered from 1; rows 0 and
    ``keys + 1`` are sentinels that nothing passes.

    The gaps in `again` are those whose tensors have left before: their offloads take no time, and
    they may be evaluated only together with an earlier gap of the tensor. Of the others, at most
    one gap of each tensor may be in the orders that are evaluated. A `MethodError` says that the
    tensors that are resident at the start do not fit. The arrays, of int64:

    - ``keys``, a row a key: ``REQUIRED``: bytes that must be absent; ``FRONT``, ``BACK``: ticks of
      all operations before and after it; ``MAY_SPLIT``: whether memory is no issue between the
      previous key and it. ``key_operations`` are the operations of keys 1, 2, …
    - ``gaps``, a row a gap of the trace: ``SIZE`` in bytes; ``OFFLOAD``, ``PREFETCH``: ticks of a
      transfer; ``OPENS``, ``CLOSES``: the tensor can be absent at keys in ``[OPENS, CLOSES)``;
      ``WRITER_KEY``: the last key not after the writer; ``WRITTEN``: ticks of the operations up to
      the writer; ``NEEDED``, ``READ``: ticks of the operations from ``after`` on, and of those
      after ``before``; ``WRITER``, ``BEFORE``, ``AFTER``: operations.
    - ``settings``: ``COMPUTE``: ticks of all operations; ``DUPLEX``: 0 or 1; ``NESTED``: 1 if every
      writer and ``before`` comes before every ``after``.
    """

    def __init__(self, problem: Problem, again: Collection[int] = ()) -> None:
        trace, memory = problem.trace, problem.platform.memory
        if trace.resident_at_start > memory:
            raise MethodError(
                f"{trace.resident_at_start} bytes are resident at the start, "
                f"but the memory limit is {memory}"
            )
        latest_before = max((gap.before for gap in trace.gaps), default=-1)
        closing = {gap.after for gap in trace.gaps if gap.after <= latest_before}
        self.key_operations = tuple(
            o for o, demand in enumerate(trace.demand) if demand > memory or o in closing
        )
        self.elapsed = (0, *accumulate(trace.durations))
        self.keys = self._key_rows(problem)
        self.gaps = self._gap_rows(problem)
        self.gaps[list(again), OFFLOAD] = 0
        nested = all(gap.after > latest_before for gap in trace.gaps)
        self.settings = np.array(
            [trace.compute_time, problem.platform.duplex, nested], dtype=np.int64
        )

    def _key_rows(self, problem: Problem) -> IntArray:
        trace, memory = problem.trace, problem.platform.memory
        rows = [[_NEVER, 0, 0, 0]]
        previous = -1
        for o in self.key_operations:
            splits = o - previous > 1 or trace.live_before[o] <= memory
            required = max(0, trace.demand[o] - memory)
            rows.append(
                [required, self.elapsed[o], trace.compute_time - self.elapsed[o + 1], splits]
            )
            previous = o
        rows.append([_NEVER, trace.compute_time, 0, 1])
        return np.array(rows, dtype=np.int64)

    def _gap_rows(self, problem: Problem) -> IntArray:
        trace, keys = problem.trace, self.key_operations
        rows = []
        for gap in trace.gaps:
            tensor = trace.tensors[gap.tensor]
            writer = tensor.uses[0]
            rows.append(
                [
                    tensor.size,
                    problem.platform.transfer_time(tensor.size, Kind.OFFLOAD),
                    problem.platform.transfer_time(tensor.size, Kind.PREFETCH),
                    bisect_right(keys, gap.before) + 1,
                    bisect_left(keys, gap.after) + 1,
                    bisect_right(keys, writer),
                    self.elapsed[writer + 1],
                    trace.compute_time - self.elapsed[gap.after],
                    trace.compute_time - self.elapsed[gap.before + 1],
                    writer,
                    gap.before,
                    gap.after,
                ]
            )
        return np.array(rows, dtype=np.int64).reshape(len(rows), AFTER + 1)

    def scratch(self) -> IntArray:
        """Return working memory for `evaluate_ordered`; it may be used for any number of calls."""
        return np.zeros((SCRATCH_ROWS, max(len(self.keys), len(self.gaps))), dtype=np.int64)

    def makespan(
        self,
        offload_order: Sequence[int],
        prefetch_order: Sequence[int],
        scratch: IntArray | None = None,
    ) -> int:
        """Return `evaluate_ordered` of two orders given as sequences of gap numbers."""
        offloads, prefetches = np.array(offload_order, np.int64), np.array(prefetch_order, np.int64)
        scratch = self.scratch() if scratch is None else scratch
        return int(
            evaluate_ordered(self.keys, self.gaps, self.settings, offloads, prefetches, scratch)
        )


@inlined
def _run_front(keys: IntArray, gaps: IntArray, order: IntArray, scratch: IntArray) -> int:
    """Run the offloads no-wait; return the time at which the link is free, or `INFEASIBLE`."""
    front_idle, change = scratch[FRONT_IDLE], scratch[CHANGE]
    end = keys.shape[0] - 1
    for key in range(end + 1):
        change[key] = 0
    front_idle[0] = 0
    key, idle, link, absent = 1, 0, 0, 0
    while absent >= keys[key, REQUIRED]:
        front_idle[key] = 0
        key += 1
    for gap in order:
        writer = gaps[gap, WRITER_KEY]
        if writer >= key:
            return INFEASIBLE
        link = max(link, gaps[gap, WRITTEN] + front_idle[writer]) + gaps[gap, OFFLOAD]
        scratch[OFFLOAD_END, gap] = link
        if key >= gaps[gap, CLOSES]:
            continue
        # Absent at keys [OPENS, CLOSES): now, or when those keys are reached.
        if gaps[gap, OPENS] <= key:
            absent += gaps[gap, SIZE]
        else:
            change[gaps[gap, OPENS]] += gaps[gap, SIZE]
        change[gaps[gap, CLOSES]] -= gaps[gap, SIZE]
        while absent >= keys[key, REQUIRED]:
            idle = max(idle, link - keys[key, FRONT])
            front_idle[key] = idle
            key += 1
            absent += change[key]
    return link if key == end else INFEASIBLE


@inlined
def _run_back(keys: IntArray, gaps: IntArray, order: IntArray, scratch: IntArray) -> int:
    """Run the prefetches no-wait in reversed time; return when the link is free, or `INFEASIBLE`.

    ``FLOOR`` holds, per key, the least idle time that the prefetches impose on ``before``.
    """
    back_idle, change, floor = scratch[BACK_IDLE], scratch[CHANGE], scratch[FLOOR]
    end = keys.shape[0] - 1
    for key in range(end + 1):
        change[key] = floor[key] = 0
    back_idle[end] = 0
    key, idle, link, absent, earliest = end - 1, 0, 0, 0, _NEVER
    while absent >= keys[key, REQUIRED]:
        back_idle[key] = 0
        key -= 1
    for position in range(len(order) - 1, -1, -1):
        gap = order[position]
        closes, opens = gaps[gap, CLOSES], gaps[gap, OPENS]
        # A tensor that comes back later in time closes its gap before this one opens: impossible.
        if key >= closes or gaps[gap, BEFORE] >= earliest:
            return INFEASIBLE
        earliest = min(earliest, gaps[gap, AFTER])
        link = max(link, gaps[gap, NEEDED] + back_idle[closes]) + gaps[gap, PREFETCH]
        scratch[PREFETCH_END, gap] = link
        least = link - gaps[gap, READ]
        if key >= opens:
            floor[opens - 1] = max(floor[opens - 1], least)
            absent += gaps[gap, SIZE]
            change[opens - 1] -= gaps[gap, SIZE]
            while absent >= keys[key, REQUIRED]:
                idle = max(idle, link - keys[key, BACK], floor[key])
                back_idle[key] = idle
                key -= 1
                absent += change[key]
        else:
            idle = max(idle, least)
            for passed in range(key + 1, opens):
                back_idle[passed] = max(back_idle[passed], least)
    back_idle[0] = max(idle, floor[0])
    return link if key == 0 else INFEASIBLE


@inlined_and_entered
def split_makespan(keys: IntArray, compute: int, scratch: IntArray, key: int) -> int:
    """Return the least makespan on a duplex link if keys from `key` on start after the offloads.

    The keys before `key` end before the prefetches start.
    """
    value = 0
    if key > 1:
        value = compute - keys[key - 1, BACK] + scratch[FRONT_IDLE, key - 1] + scratch[LINK, 1]
    if key < keys.shape[0] - 1:
        back = compute - keys[key, FRONT] + scratch[BACK_IDLE, key]
        value = max(value, scratch[LINK, 0] + back)
    return value


@inlined
def _duplex_term(
    keys: IntArray, gaps: IntArray, compute: int, order: IntArray, scratch: IntArray
) -> int:
    """Return the ticks that replace ``t_f + t_b`` on a duplex link."""
    best = scratch[LINK, 0] + scratch[LINK, 1]
    first, last, own = 1, keys.shape[0] - 1, 0
    for gap in order:
        first = max(first, gaps[gap, WRITER_KEY] + 1)
        last = min(last, gaps[gap, CLOSES])
        own = max(own, scratch[OFFLOAD_END, gap] + scratch[PREFETCH_END, gap])
    for key in range(first, last + 1):
        if keys[key, MAY_SPLIT]:
            best = min(best, split_makespan(keys, compute, scratch, key))
    return max(best, own)


@inlined_and_entered
def evaluate_ordered(
    keys: IntArray,
    gaps: IntArray,
    settings: IntArray,
    offload_order: IntArray,
    prefetch_order: IntArray,
    scratch: IntArray,
) -> int:
    """Return the least makespan of an ordered schedule (see `ordered`), or `INFEASIBLE`.

    Both orders have the same gaps, in the order in which their tensors leave, and come back. Not
    checked: equal sets, of each tensor at most one gap that is not `again`, and that before the
    others.

    On a feasible return the scratch holds the times: idle ticks before each key in the front
    (``FRONT_IDLE``) and, reversed, in the back (``BACK_IDLE``; entry 0 is the start of everything);
    ends of the offloads and reversed ends of the prefetches, by gap; ``t_f`` and ``t_b``
    (``LINK``).
    """
    if not settings[NESTED]:
        latest, earliest = -1, _NEVER
        for gap in offload_order:
            latest = max(latest, gaps[gap, WRITER])
            earliest = min(earliest, gaps[gap, AFTER])
        if latest >= earliest:
            return INFEASIBLE
    front = _run_front(keys, gaps, offload_order, scratch)
    if front < 0:
        return INFEASIBLE
    back = _run_back(keys, gaps, prefetch_order, scratch)
    if back < 0:
        return INFEASIBLE
    scratch[LINK, 0], scratch[LINK, 1] = front, back
    # Waiting changes only at keys, so the largest f_o + g_o is found there or at the very start.
    waiting = 0
    for key in range(keys.shape[0] - 1):
        waiting = max(waiting, scratch[FRONT_IDLE, key] + scratch[BACK_IDLE, key])
    makespan = settings[COMPUTE] + waiting
    if settings[DUPLEX]:
        return max(makespan, _duplex_term(keys, gaps, settings[COMPUTE], offload_order, scratch))
    return max(makespan, front + back)
