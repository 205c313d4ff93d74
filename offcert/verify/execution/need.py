"""The least memory in which anything can be executed, for verification."""

from __future__ import annotations

from offcert.core.problem import Problem, Recompute
from offcert.verify.common.absence import least_memory
from offcert.verify.least_memory.needs import at_start, needs_of


def least_need(problem: Problem) -> tuple[int, int, str]:
    """Return the bytes that no schedule can do without, and where: operation and its name.

    Where computations may run again, that is what a single one of them reads and writes; -1 is
    what is there at the start.
    """
    network = problem.computed
    if problem.recompute is Recompute.NONE or network is None:
        needed, operation = least_memory(problem)
        return needed, operation, _name(problem, operation)
    needs = needs_of(problem, network)
    found = (at_start(needs), -1, "the start")
    for index, (needed, each) in enumerate(zip(needs.own, network.computations, strict=True)):
        if needed > found[0]:
            found = (needed, index, each.name)
    return found


def _name(problem: Problem, operation: int) -> str:
    return problem.trace.operations[operation].name if operation >= 0 else "the start"
