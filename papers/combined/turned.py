"""Schedules of the combined paper's plans with interruptible transfers, out before all back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from offcert.core.errors import NoPlanError
from offcert.core.platform import Kind
from offcert.heuristics.combined.search import CombinedPlan
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, TransferPiece


@dataclass(frozen=True, slots=True)
class CombinedMove:
    """Something that leaves and returns: a gap of the trace, and its bytes.

    It can be copied once the operation `written` has ended, counts as absent for those after
    `opened`, and has to be back when `closed` starts.
    """

    gap: int
    size: int
    written: int
    opened: int
    closed: int


def turned_schedule(problem: Problem, moved: Sequence[CombinedMove], turn: int) -> FluidSchedule:
    """Return the shortest schedule that moves these, out before the turn and back after it."""
    trace = problem.trace
    last = len(trace) - 1
    lacking = [demand - problem.platform.memory for demand in trace.demand]
    front = _Side(trace.durations[: turn + 1], lacking[: turn + 1])
    back = _Side(trace.durations[:turn:-1], lacking[:turn:-1])
    # In reversed time: what is needed last comes first.
    returning = sorted(moved, key=lambda item: -item.closed)
    platform = problem.platform
    rates = {kind: platform.rate(kind) for kind in Kind}
    out = front.run(
        [(m.size / rates[Kind.OFFLOAD], m.size, m.written, m.opened, m.gap) for m in moved]
    )
    into = back.run(
        [
            (m.size / rates[Kind.PREFETCH], m.size, last - m.closed, last - m.closed, m.gap)
            for m in returning
        ]
    )
    if out is None or into is None:
        raise NoPlanError("what leaves is not enough for the memory")
    length = math.ceil(front.free + back.free)
    starts = front.starts + [
        length - start - duration
        for start, duration in zip(back.starts[::-1], trace.durations[turn + 1 :], strict=True)
    ]
    pieces = [
        TransferPiece(Kind.OFFLOAD, g, begin, end, Fraction(size)) for g, begin, end, size in out
    ]
    pieces += [
        TransferPiece(Kind.PREFETCH, g, length - end, length - begin, Fraction(size))
        for g, begin, end, size in into
    ]
    ends = [start + duration for start, duration in zip(starts, trace.durations, strict=True)]
    return FluidSchedule(starts, ends, pieces)


class _Side:
    """One side of the turn, in its own time and its own numbers of operations.

    `starts` are those of the operations, and `free` is when both device and link are done.
    """

    def __init__(self, durations: Sequence[int], lacking: Sequence[int]) -> None:
        self.durations, self.lacking = durations, lacking
        self.starts: list[int] = []
        self.free = Fraction(0)

    def run(
        self, moves: Sequence[tuple[Fraction, int, int, int, int]]
    ) -> list[tuple[int, Fraction, Fraction, int]] | None:
        """Return gap, begin, end and size of every transfer, or None if an operation never fits."""
        done: list[tuple[int, Fraction, Fraction, int]] = []
        opened: list[int] = []
        link, end = Fraction(0), 0
        # Behind the last operation, what is left is moved.
        stations = [*zip(self.durations, self.lacking, strict=True), (0, 0)]
        for o, (duration, lacking) in enumerate(stations):
            while len(done) < len(moves) and moves[len(done)][2] < o:
                ticks, size, written, since, gap = moves[len(done)]
                begin = link if written < 0 else max(link, Fraction(self._end(written)))
                link = begin + ticks
                done.append((gap, begin, link, size))
                opened.append(since)
            helping = [d for d, since in zip(done, opened, strict=True) if since < o]
            start = _when(helping, lacking)
            if start is None:
                return None
            if o == len(self.durations):
                break
            self.starts.append(max(end, math.ceil(start)))
            end = self.starts[-1] + duration
        self.free = max(Fraction(end), link)
        return done

    def _end(self, operation: int) -> int:
        return self.starts[operation] + self.durations[operation]


def _when(
    transfers: Sequence[tuple[int, Fraction, Fraction, int]], lacking: int
) -> Fraction | None:
    """Return when transfers have moved so many bytes, or None if they never have."""
    if lacking <= 0:
        return Fraction(0)
    for _, begin, end, size in transfers:
        if size >= lacking:
            return begin + (end - begin) * lacking / size
        lacking -= size
    return None


def counted(plan: CombinedPlan, problem: Problem) -> FluidSchedule:
    """Return the schedule of a plan with interruptible transfers as the paper counts memory.

    If nothing was rounded, its makespan is the plan's `value`.
    """
    return _turned(problem, plan, plan.inputs)


def fluid(plan: CombinedPlan, problem: Problem) -> FluidSchedule:
    """Return the shortest schedule with interruptible transfers that turn with the computing.

    What a stage keeps beside its output is released as soon as it has left, and returns when it is
    needed itself.
    """
    gaps = ((number, plan.execution.trace.gaps[number]) for number in plan.gaps)
    return _turned(problem, plan, [(number, gap.before, gap.after) for number, gap in gaps])


def _turned(
    problem: Problem, plan: CombinedPlan, leaving: Sequence[tuple[int, int, int]]
) -> FluidSchedule:
    chain, trace = problem.checkpoint_chain, plan.execution.trace
    assert chain is not None
    moved = []
    for number, opened, closed in leaving:
        tensor = trace.tensors[trace.gaps[number].tensor]
        moved.append(CombinedMove(number, tensor.size, tensor.uses[0], opened, closed))
    executed = problem.executed(plan.execution)
    platform = problem.platform.alone
    pausing = replace(executed, platform=platform, transfers=Transfers.INTERRUPTIBLE)
    return turned_schedule(pausing, moved, len(chain) - 1)
