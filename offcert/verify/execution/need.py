"""The least memory in which anything can be executed, for verification."""

from __future__ import annotations

from offcert.core.problem import Problem, Recompute
from offcert.verify.common.absence import least_memory


def least_need(problem: Problem) -> tuple[int, int, str]:
    """Return the bytes that no schedule can do without, and where: operation and its name.

    Where computations may run again, that is what a single one of them reads and writes; -1 is
    what is there at the start.
    """
    network = problem.computed
    if problem.recompute is Recompute.NONE or network is None:
        needed, operation = least_memory(problem)
        return needed, operation, _name(problem, operation)
    read = {value for each in network.computations for value in each.reads}
    at_start = sum(
        value.size
        for index, (value, writer) in enumerate(zip(network.values, network.writer, strict=True))
        if writer < 0 and index in read
    )
    found = (at_start, -1, "the start")
    for index, each in enumerate(network.computations):
        kept = each.workspace + sum(network.values[value].size for value in each.writes)
        beside = kept if each.lean is None else min(kept, each.lean)
        needed = beside + sum(network.values[value].size for value in each.reads)
        if needed > found[0]:
            found = (needed, index, each.name)
    return found


def _name(problem: Problem, operation: int) -> str:
    return problem.trace.operations[operation].name if operation >= 0 else "the start"
