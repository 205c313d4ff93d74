"""Programs as training really carries them out, plans for what runs then, and launch times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from offcert.core.carried.carry import Carried, carry
from offcert.core.carried.ranges import RANGES, Ranges
from offcert.core.carried.record import captured
from offcert.core.execution import Execution
from offcert.core.platform import Kind
from offcert.core.program import Program
from offcert.core.trace import Gap
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem


def carried_on(problem: Problem, program: Program) -> Carried | None:
    """Return the execution that training really runs for a program, or None if nothing records it.

    The source of a captured step says how it runs again; segments are ranges of the capture.
    """
    network, found = problem.computed, captured(problem.source)
    return None if network is None or found is None else carry(network, program, *found)


def with_ranges(problem: Problem, ranges: Ranges) -> Problem:
    """Return the problem of a captured step in which only some of its ranges may run again."""
    assert problem.source is not None
    capture = {**problem.source["capture"], "ranges": RANGES.write(ranges)}
    return replace(problem, source={**problem.source, "capture": capture})


def translated(plan: Plan, planned: Execution, real: Execution) -> Plan:
    """Return the decisions of a plan for another execution with the same runs of the same network.

    Tensors may have other uses in it, or may not leave at all: what cannot be done is left out, and
    what can be done for a shorter time is done for that time. Whether the memory still suffices is
    for the caller to see.
    """
    return _Translation(planned, real).plan(plan)


class _Translation:
    def __init__(self, planned: Execution, real: Execution) -> None:
        self.planned = planned
        self.real = real
        # Copies of values are the same if they are made by the same run.
        tensors = {
            (value, tensor.uses[0]): index
            for index, (value, tensor) in enumerate(
                zip(real.values, real.trace.tensors, strict=True)
            )
            if value >= 0
        }
        self.tensor_of = [
            tensors.get((value, tensor.uses[0]))
            for value, tensor in zip(planned.values, planned.trace.tensors, strict=True)
        ]
        self.gaps_of: dict[int, list[int]] = {}
        for number, gap in enumerate(real.trace.gaps):
            self.gaps_of.setdefault(gap.tensor, []).append(number)

    def plan(self, plan: Plan) -> Plan:
        moves: list[Move] = []
        left: set[int] = set()
        for move in plan.moves:
            gap = self.planned.trace.gaps[move.gap]
            number = self._gap(gap)
            if number is None:
                continue
            found = self.real.trace.gaps[number]
            if move.kind is Kind.OFFLOAD:
                left.add(found.tensor)
                before = min(max(move.before, found.before + 1), found.after)
            else:
                before = max(min(move.before, found.after), found.before + 1)
                if found.tensor not in left:
                    # The transfer that took it to the host is one that cannot be made.
                    left.add(found.tensor)
                    moves.append(Move(Kind.OFFLOAD, number, found.before + 1))
            moves.append(replace(move, gap=number, before=before))
        return Plan(moves)

    def _gap(self, gap: Gap) -> int | None:
        """Return the longest gap of the same tensor within a gap of the plan."""
        tensor = self.tensor_of[gap.tensor]
        if tensor is None:
            return None
        trace = self.real.trace
        inside = [
            number
            for number in self.gaps_of.get(tensor, [])
            if gap.before <= trace.gaps[number].before and trace.gaps[number].after <= gap.after
        ]
        return max(inside, key=lambda n: trace.gaps[n].after - trace.gaps[n].before, default=None)


def launch_times(problem: Problem, execution: Execution | None = None) -> tuple[int, ...] | None:
    """Return the nanoseconds that the host took to hand over each operation; None if nobody knows.

    The problem of a measured step has them in ``source.measurement.launch_ns``; a computation that
    runs again in an execution is handed over again, in the same time.
    """
    found = ((problem.source or {}).get("measurement") or {}).get("launch_ns")
    operations = len(problem.trace if execution is None else execution.trace)
    once = operations if problem.computed is None else len(problem.computed)
    if not isinstance(found, list) or len(found) != once or not all(map(_is_time, found)):
        return None
    return tuple(found if execution is None else (found[run] for run in execution.runs))


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def with_host(durations: Sequence[int], launches: Sequence[int]) -> int:
    """Return when operations have ended of which none starts before it is launched."""
    end = 0
    for duration, handed in zip(durations, accumulate(launches), strict=True):
        end = max(end + duration, handed)
    return end
