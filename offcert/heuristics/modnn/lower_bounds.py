"""The least memory of a training step (moDNN paper, Eqs. 6 and 7).

A task needs what it reads, what it writes, and the least workspace of its alternatives; what may
not leave (the weights, in the paper) is there beside. What the paper prints as a lower bound is the
least memory: with unlimited time everything else can leave before a task (docs/theory/modnn.md).
Where weights are tensors that may leave, the same formula is the paper's bound for that case.
"""

from __future__ import annotations

from itertools import accumulate

from offcert.core.menu import Menu
from offcert.core.trace import Trace


def task_memory(trace: Trace, menu: Menu | None = None) -> tuple[int, ...]:
    """Return the bytes of what each task reads and writes, and of its least workspace (Eq. 6)."""
    offers = (menu or Menu()).of
    needs = [
        min((way.workspace for way in offers[index]), default=0)
        if index in offers
        else operation.workspace
        for index, operation in enumerate(trace.operations)
    ]
    for tensor in trace.tensors:
        if tensor.evictable:
            for use in tensor.uses:
                if use >= 0:
                    needs[use] += tensor.size
    return tuple(needs)


def held_memory(trace: Trace) -> tuple[int, ...]:
    """Return the bytes that may not leave, during each task: the weights, S_W in the paper."""
    change = [0] * (len(trace) + 1)
    for tensor in trace.tensors:
        if not tensor.evictable:
            change[max(tensor.uses[0], 0)] += tensor.size
            change[tensor.uses[-1] + 1] -= tensor.size
    return tuple(accumulate(change[:-1]))


def least_memory(trace: Trace, menu: Menu | None = None) -> int:
    """Return the least bytes with which there is a schedule for some choice (Eq. 7).

    Of a step in sub-batches, that of one image has the least of all.
    """
    needs = zip(task_memory(trace, menu), held_memory(trace), strict=True)
    return max(max(need + held for need, held in needs), trace.resident_at_start)
