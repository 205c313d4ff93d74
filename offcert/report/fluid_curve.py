"""The memory over time of a schedule whose transfers are in pieces: linear between its events."""

from __future__ import annotations

from fractions import Fraction

from offcert.core.fluid_schedule import FluidSchedule, Piece
from offcert.core.plan import Kind
from offcert.core.problem import Problem

Point = tuple[Fraction, Fraction]


def fluid_memory_curve(problem: Problem, schedule: FluidSchedule) -> list[Point]:
    """Return the bytes on the device over time as the corners of a line: (time, bytes).

    A jump is two corners at the same time. While what is copied passes what is evicted in a gap
    (fractional transfers, several gaps), the line is drawn straight between the events around.
    """
    events = {Fraction(t) for t in (0, *schedule.starts, *schedule.ends)}
    events |= {time for piece in schedule.pieces for time in (piece.start, piece.end)}
    curve = _Curve(problem, schedule)
    points: list[Point] = []
    begin = Fraction(0)
    for o in range(len(schedule.starts)):
        first, last = Fraction(schedule.starts[o]), Fraction(schedule.ends[o])
        for running, start, end in ((0, begin, first), (1, first, last)):
            if end > start:
                inside = sorted(time for time in events if start <= time <= end)
                points += [(time, curve.held(o, running, time)) for time in inside]
        begin = last
    return [*points, (begin, Fraction(0))]


class _Curve:
    def __init__(self, problem: Problem, schedule: FluidSchedule) -> None:
        self.trace = problem.trace
        self.copied: dict[int, list[Piece]] = {}
        self.returned: dict[int, list[Piece]] = {}
        for piece in schedule.pieces:
            if piece.kind is Kind.OFFLOAD:
                self.copied.setdefault(self.trace.gaps[piece.gap].tensor, []).append(piece)
            else:
                self.returned.setdefault(piece.gap, []).append(piece)

    def held(self, o: int, running: int, time: Fraction) -> Fraction:
        """Return the bytes at `time` while operation o runs (1) or in the idle time before (0)."""
        total = Fraction(running * self.trace.operations[o].workspace)
        for tensor in self.trace.tensors:
            if tensor.uses[0] < o + running and o <= tensor.uses[-1]:
                total += tensor.size
        for number, pieces in self.returned.items():
            gap = self.trace.gaps[number]
            if gap.before < o <= gap.after - running:
                copied = _moved(self.copied[gap.tensor], time)
                evicted = sum((piece.size for piece in pieces), Fraction(0))
                total -= min(copied, evicted) - _moved(pieces, time)
        return total


def _moved(pieces: list[Piece], time: Fraction) -> Fraction:
    shares = (
        min(max((time - piece.start) / (piece.end - piece.start), Fraction(0)), Fraction(1))
        * piece.size
        for piece in pieces
    )
    return sum(shares, Fraction(0))
