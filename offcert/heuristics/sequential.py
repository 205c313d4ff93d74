"""A plan that works at any feasible memory limit: evict just before an operation needs the room."""

from __future__ import annotations

from offcert.core.errors import MethodError
from offcert.core.plan import Kind, Move, Plan
from offcert.core.problem import Problem


def sequential(problem: Problem) -> Plan:
    """Return a plan that serves the operations one after the other.

    Before each operation, tensors leave, the one needed furthest in the future first (Belady's
    rule), until the operation fits; then those it uses come back. No operation ever waits for
    anything later, so the plan runs whenever any plan does. It is the last resort of every search.

    Raises
    ------
    MethodError
        If no plan exists at this memory limit.
    """
    trace = problem.trace
    moves: list[Move] = []
    gone: set[int] = set()
    copied: set[int] = set()
    for operation in range(len(trace)):
        need = trace.demand[operation] - problem.platform.memory
        need -= sum(trace.gap_size(gap) for gap in gone if trace.gaps[gap].spans(operation))
        candidates = [gap for gap in trace.gaps_over[operation] if gap not in gone]
        for gap in sorted(candidates, key=lambda gap: trace.gaps[gap].after, reverse=True):
            if need <= 0:
                break
            need -= trace.gap_size(gap)
            gone.add(gap)
            if trace.gaps[gap].tensor not in copied:
                copied.add(trace.gaps[gap].tensor)
                moves.append(Move(Kind.OFFLOAD, gap, operation))
        if need > 0:
            name = trace.operations[operation].name
            raise MethodError(f"operation {operation} ({name}) lacks {need} bytes in every plan")
        for gap in sorted(gap for gap in gone if trace.gaps[gap].after == operation):
            moves.append(Move(Kind.PREFETCH, gap, operation))
            gone.discard(gap)
    return Plan(moves)
