"""The makespans of many sets of gaps on one problem, each as its ordered, no-wait schedule."""

from __future__ import annotations

from collections.abc import Iterable

from offcert.core.errors import MethodError
from offcert.core.problem import Problem
from offcert.heuristics.ordered import ordered_orders
from offcert.heuristics.ordered_kernel import INFEASIBLE, OrderedArrays


class OrderedSets:
    """Evaluates sets as `ordered.ordered_makespan` does, with the problem's arrays built once.

    Parameters
    ----------
    problem : Problem
        A trace in which every tensor has at most one gap.
    method : str
        Who asks, for messages.

    Raises
    ------
    MethodError
        If a tensor has several gaps, or no plan of any kind exists at this memory limit.
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
