"""Tensors that must be away during one operation and back for the next: forced waiting time.

Where memory is short, a tensor that an operation does not use has to be absent while it runs even
if all else that may be absent is. If the next operation uses it, its prefetch lies between the two:
it takes its memory when the first has ended, and the second waits for it. On a simplex link nothing
else happens meanwhile. Cut that time out of any schedule, and what is left is one of the problem in
which the tensor ends with its use before, and another one takes its memory from its return on. So
that problem's bounds, with the time of these prefetches added, are bounds.

A tensor that may leave once more afterwards would need no offload for that, so it is not split. Nor
is one that may leave only in that gap: cutting out its prefetch would leave out its offload too.
"""

from __future__ import annotations

from dataclasses import replace

from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.core.trace import Tensor, Trace
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
