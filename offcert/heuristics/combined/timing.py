"""Decisions timed exactly: the shortest schedule whose transfers turn with the computation.

What leaves does so before the first backward operation, in one order; what returns does so after
the last forward operation of the first pass, in another. Then neither side depends on the other.
In front of the turn, every operation starts as soon as enough has left, byte by byte; behind it the
same holds in reversed time; between them is the time that the link still needs for both. Starts
are whole ticks on either side, so those of the schedule are.

No such schedule is shorter: by induction over the operations of a side, none can start earlier,
because every transfer in front of it begins as early as it can, and the reverse behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.errors import NoPlanError
from offcert.core.fluid_schedule import FluidSchedule, Piece
from offcert.core.plan import Kind
from offcert.core.problem import Problem


@dataclass(frozen=True, slots=True)
class Moved:
    """Something that leaves and returns.

    Attributes
    ----------
    gap : int
        Of the trace.
    size : int
        Bytes.
    written, opened, closed : int
        Operations: it can be copied once `written` has ended, counts as absent for those after
        `opened`, and has to be back when `closed` starts.
    """

    gap: int
    size: int
    written: int
    opened: int
    closed: int


def turned_schedule(problem: Problem, moved: Sequence[Moved], turn: int) -> FluidSchedule:
    """Return the shortest schedule that moves these, out before the turn and back after it.

    Parameters
    ----------
    problem : Problem
        A trace; transfers are taken as interruptible.
    moved : sequence of Moved
        In the order in which they leave. Those that are needed at the same time return in the
        reverse.
    turn : int
        The last operation before the turn.

    Raises
    ------
    NoPlanError
        If some operation lacks memory all the same.
    """
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
    pieces = [Piece(Kind.OFFLOAD, g, begin, end, Fraction(size)) for g, begin, end, size in out]
    pieces += [
        Piece(Kind.PREFETCH, g, length - end, length - begin, Fraction(size))
        for g, begin, end, size in into
    ]
    ends = [start + duration for start, duration in zip(starts, trace.durations, strict=True)]
    return FluidSchedule(starts, ends, pieces)


class _Side:
    """One side of the turn, in its own time and its own numbers of operations.

    Attributes
    ----------
    starts : list of int
        Of the operations.
    free : Fraction
        When both the device and the link are done.
    """

    def __init__(self, durations: Sequence[int], lacking: Sequence[int]) -> None:
        self.durations, self.lacking = durations, lacking
        self.starts: list[int] = []
        self.free = Fraction(0)

    def run(
        self, moves: Sequence[tuple[Fraction, int, int, int, int]]
    ) -> list[tuple[int, Fraction, Fraction, int]] | None:
        """Return gap, begin, end and size of every transfer, or None if an operation never fits.

        Parameters
        ----------
        moves : sequence of (ticks, size, written, opened, gap)
            In their order.
        """
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
