"""Adding tensors to an ordered schedule one by one, each where it does most good.

Orders that were found without looking at small tensors leave these on the device, and may lack a
few bytes for that. A small tensor hardly costs time on the link, so it goes first or last of what
leaves; when it returns is tried at every place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from offcert.core.errors import MethodError
from offcert.heuristics.orders.ordered import OrderedArrays, ordered_schedule
from offcert.heuristics.orders.ordered_kernel import INFEASIBLE, evaluate_ordered
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

_Orders = tuple[tuple[int, ...], tuple[int, ...]]
# The length of an order that is no schedule. By definition.
_NEVER = 2**62


def with_insertions(
    problem: Problem, offloads: Sequence[int], prefetches: Sequence[int], gaps: Iterable[int]
) -> Schedule:
    """Return the schedule of given orders with those of some more gaps that shorten it.

    Raises
    ------
    MethodError
        If not even with them there is an ordered schedule.
    """
    best, shortest = _Insertion(problem).grown((tuple(offloads), tuple(prefetches)), gaps)
    if shortest == _NEVER:
        raise MethodError("no ordered schedule was found, whatever was added to the orders")
    return ordered_schedule(problem, *best)


def with_all_but(
    problem: Problem, offloads: Sequence[int], prefetches: Sequence[int], gaps: Iterable[int]
) -> Schedule:
    """Return the schedule of given orders with some more gaps, but for those that lengthen it.

    Where several tensors are missing, none of which helps alone, this finds what `with_insertions`
    does not. Parameters and errors are those of that.
    """
    insertion = _Insertion(problem)
    best: _Orders = tuple(offloads), tuple(prefetches)
    taken = {problem.trace.gaps[gap].tensor for gap in offloads}
    added = []
    for gap in gaps:
        if problem.trace.gaps[gap].tensor not in taken:
            taken.add(problem.trace.gaps[gap].tensor)
            added.append(gap)
            best = insertion.in_order_of_use(best, gap)
    for gap in added:
        without: _Orders = tuple(_without(order, gap) for order in best)  # type: ignore[assignment]
        best = min((best, without, *_inserted(without, gap)), key=insertion.length)
    if insertion.length(best) == _NEVER:
        raise MethodError("no ordered schedule was found with all that was added to the orders")
    return ordered_schedule(problem, *best)


class _Insertion:
    def __init__(self, problem: Problem) -> None:
        self.trace = problem.trace
        self._arrays = OrderedArrays(problem)
        self._scratch = self._arrays.scratch()

    def length(self, orders: _Orders) -> int:
        """Return the makespan of the ordered schedule, or `_NEVER` if there is none."""
        one, two = (np.array(order, dtype=np.int64) for order in orders)
        arrays = self._arrays
        parts = arrays.keys, arrays.gaps, arrays.settings, one, two, self._scratch
        makespan = int(evaluate_ordered(*parts))
        return _NEVER if makespan == INFEASIBLE else makespan

    def grown(self, best: _Orders, gaps: Iterable[int]) -> tuple[_Orders, int]:
        """Add the gaps that shorten the schedule, one after the other."""
        shortest = self.length(best)
        tensors = {self.trace.gaps[gap].tensor for gap in best[0]}
        for gap in gaps:
            if self.trace.gaps[gap].tensor in tensors:
                continue
            candidate = min(_inserted(best, gap), key=self.length)
            if self.length(candidate) < shortest:
                best, shortest = candidate, self.length(candidate)
                tensors.add(self.trace.gaps[gap].tensor)
        return best, shortest

    def in_order_of_use(self, orders: _Orders, gap: int) -> _Orders:
        """Insert a gap where its tensor is written, and used again, among the others."""

        def written(other: int) -> int:
            return self.trace.tensors[self.trace.gaps[other].tensor].uses[0]

        def used(other: int) -> int:
            return self.trace.gaps[other].after

        offloads, prefetches = orders
        i = next((i for i, x in enumerate(offloads) if written(x) >= written(gap)), len(offloads))
        j = next((j for j, x in enumerate(prefetches) if used(x) > used(gap)), len(prefetches))
        return (
            (*offloads[:i], gap, *offloads[i:]),
            (*prefetches[:j], gap, *prefetches[j:]),
        )


def _without(order: tuple[int, ...], gap: int) -> tuple[int, ...]:
    return tuple(other for other in order if other != gap)


def _inserted(orders: _Orders, gap: int) -> Iterator[_Orders]:
    offloads, prefetches = orders
    for leaving in ((gap, *offloads), (*offloads, gap)):
        for place in range(len(prefetches) + 1):
            yield leaving, (*prefetches[:place], gap, *prefetches[place:])
