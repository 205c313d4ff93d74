"""A plan that works at any feasible memory limit: evict just before an operation needs the room."""

from __future__ import annotations

from heapq import heappop, heappush

from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem


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
    absent = 0
    # What may leave, the one needed furthest in the future first.
    candidates: list[tuple[int, int]] = []
    for operation in range(len(trace)):
        back = [gap for gap in trace.gaps_leaving[operation] if gap in gone]
        absent -= sum(map(trace.gap_size, back))
        for gap in trace.gaps_entering[operation]:
            heappush(candidates, (-trace.gaps[gap].after, gap))
        need = trace.demand[operation] - problem.platform.memory - absent
        while need > 0 and candidates and -candidates[0][0] > operation:
            _, gap = heappop(candidates)
            need -= trace.gap_size(gap)
            absent += trace.gap_size(gap)
            gone.add(gap)
            if trace.gaps[gap].tensor not in copied:
                copied.add(trace.gaps[gap].tensor)
                moves.append(Move(Kind.OFFLOAD, gap, operation))
        if need > 0:
            name = trace.operations[operation].name
            raise MethodError(f"operation {operation} ({name}) lacks {need} bytes in every plan")
        moves += (Move(Kind.PREFETCH, gap, operation) for gap in back)
    return Plan(moves)
