"""Adding tensors to an ordered schedule one by one, each where it does most good.

Orders that were found without looking at small tensors leave these on the device, and may lack a
few bytes for that. A small tensor hardly costs time on the link, so it goes first or last of what
leaves; when it returns is tried at every place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from offcert.core.errors import MethodError
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.heuristics.ordered import OrderedArrays, ordered_schedule
from offcert.heuristics.ordered_kernel import INFEASIBLE, evaluate_ordered

_Orders = tuple[tuple[int, ...], tuple[int, ...]]


def with_insertions(
    problem: Problem, offloads: Sequence[int], prefetches: Sequence[int], gaps: Iterable[int]
) -> Schedule:
    """Return the schedule of given orders with those of some more gaps that shorten it.

    Parameters
    ----------
    problem : Problem
        Any trace.
    offloads, prefetches : sequence of int
        The same gaps, of different tensors.
    gaps : iterable of int
        Gaps that may be added, each tried once.

    Raises
    ------
    MethodError
        If not even with them there is an ordered schedule.
    """
    trace = problem.trace
    arrays = OrderedArrays(problem)
    scratch = arrays.scratch()

    def length(orders: _Orders) -> int:
        one, two = (np.array(order, dtype=np.int64) for order in orders)
        parts = arrays.keys, arrays.gaps, arrays.settings, one, two, scratch
        makespan = int(evaluate_ordered(*parts))
        return 2**62 if makespan == INFEASIBLE else makespan

    best: _Orders = tuple(offloads), tuple(prefetches)
    shortest = length(best)
    tensors = {trace.gaps[gap].tensor for gap in offloads}
    for gap in gaps:
        if trace.gaps[gap].tensor in tensors:
            continue
        candidate = min(_inserted(best, gap), key=length)
        if length(candidate) < shortest:
            best, shortest = candidate, length(candidate)
            tensors.add(trace.gaps[gap].tensor)
    if shortest == 2**62:
        raise MethodError("no ordered schedule was found, whatever was added to the orders")
    return ordered_schedule(problem, *best)


def _inserted(orders: _Orders, gap: int) -> Iterator[_Orders]:
    offloads, prefetches = orders
    for leaving in ((gap, *offloads), (*offloads, gap)):
        for place in range(len(prefetches) + 1):
            yield leaving, (*prefetches[:place], gap, *prefetches[place:])
