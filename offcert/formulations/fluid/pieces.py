"""The layout of exact amounts, near a solver's, as pieces of transfers in each stretch of time.

A stretch is an operation or the idle time before it. Its offloads begin with it, its prefetches end
with it, all at full rate. On a duplex link one tensor may leave and return within a stretch, and
then come back sooner than it left. With the stretch cut into n equal parts, the bytes that have
left but not come back (the *lead*) are what they would be in proportion at each of the n + 1 ends.
For large n, a positive lead covers what a part moves. That leaves tensors whose lead is 0 at the
start or at the end of a part. Let the tensors that leave and return in a part have one order for
both, before the others that leave and after the others that return: first those without a lead at
the part's end, last those without one at its start. One of the latter leaves from ``C_<`` on and
returns from ``T - R_≥`` on, where C and R are the times that those before it, or it and those after
it, take to leave and return. As ``R ≤ C`` for it and all after it, ``C_< + R_≥ ≤ T``: it returns no
sooner than it leaves. One of the former is the mirror image. For n > 2 no part has to serve both
kinds, unless a lead is 0 throughout, and then the tensor counts as either. So some n is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from offcert.core.platform import Kind
from offcert.formulations.fluid.program import FluidProgram
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, TransferPiece


@dataclass(frozen=True)
class Amounts:
    """Cumulative bytes at every instant (start and end of each operation in turn)."""

    copied: dict[int, list[Fraction]]  # By tensor that is offloaded: bytes that have left.
    # By gap in which something is evicted: bytes that have come back.
    returned: dict[int, list[Fraction]]


def exact_amounts(program: FluidProgram, values: list[float], denominator: int) -> Amounts:
    """Round a solution, the values of columns, to multiples of ``1 / denominator`` bytes.

    Evictions of the program are decided, or fractional. What rounding must not touch is kept:
    amounts grow, stay within their tensor, are complete when their gap closes, and nothing returns
    that has not left. Link and memory may end up violated.
    """
    trace = program.trace
    copied, returned = {}, {}
    for tensor, gaps in program.gaps_of.items():
        size = trace.tensors[tensor].size
        evicted = {}
        for gap in gaps:
            rounded = _rounded(program.bytes_at(program.returned[gap], values), denominator, size)
            if rounded[-1] > 0:
                evicted[gap] = rounded
        if not evicted:
            continue
        most = max(rounded[-1] for rounded in evicted.values())
        left = _rounded(program.bytes_at(program.copied[tensor], values), denominator, most)
        for gap, rounded in evicted.items():
            closed = 2 * trace.gaps[gap].after
            # The last bytes may lack a rounding error; they must have left when the gap closes.
            for k in range(closed, len(left)):
                left[k] = max(left[k], rounded[-1])
        for gap, rounded in evicted.items():
            returned[gap] = [min(pair) for pair in zip(rounded, left, strict=True)]
        copied[tensor] = left
    return Amounts(copied, returned)


def _rounded(amounts: list[float], denominator: int, most: int | Fraction) -> list[Fraction]:
    exact = [min(Fraction(round(a * denominator), denominator), Fraction(most)) for a in amounts]
    return list(accumulate((max(amount, Fraction(0)) for amount in exact), max))


def fluid_schedule(
    problem: Problem, idle: Sequence[int], amounts: Amounts, parts: int = 1
) -> FluidSchedule | None:
    """Return the schedule that moves `amounts`, unchecked; None if the link cannot.

    Before each operation the device is idle for so many ticks; each stretch is cut into so many
    parts.
    """
    layout = _Layout(problem, amounts, parts)
    starts, ends = [], []
    now = 0
    for o, duration in enumerate(problem.trace.durations):
        starts.append(now + idle[o])
        ends.append(starts[o] + duration)
        if not (layout.fill(2 * o, now, starts[o]) and layout.fill(2 * o + 1, starts[o], ends[o])):
            return None
        now = ends[o]
    return FluidSchedule(starts, ends, _merged(layout.pieces))


class _Layout:
    def __init__(self, problem: Problem, amounts: Amounts, parts: int) -> None:
        self.trace, self.amounts, self.parts = problem.trace, amounts, parts
        self.duplex = problem.platform.duplex
        self.rates = {kind: problem.platform.rate(kind) for kind in Kind}
        self.pieces: list[TransferPiece] = []
        self.first_gap = self.trace.first_gaps(amounts.returned)

    def fill(self, instant: int, begin: int, end: int) -> bool:
        """Add the pieces of the stretch before an instant; False if they do not fit."""
        leaving = _steps(self.amounts.copied, instant)
        returning = _steps(self.amounts.returned, instant)
        out = sum(leaving.values(), Fraction(0)) / self.rates[Kind.OFFLOAD]
        back = sum(returning.values(), Fraction(0)) / self.rates[Kind.PREFETCH]
        needed = max(out, back) if self.duplex else out + back
        if needed > end - begin:
            return False
        if not needed:
            return True
        both = {self.trace.gaps[gap].tensor for gap in returning} & set(leaving)
        parts = self.parts if both else 1
        part = Fraction(end - begin, parts)
        for number in range(parts):
            self._fill_part(
                begin + number * part,
                begin + (number + 1) * part,
                {tensor: size / parts for tensor, size in leaving.items()},
                {gap: size / parts for gap, size in returning.items()},
                self._order(both, instant, number),
            )
        return True

    def _order(self, both: set[int], instant: int, number: int) -> dict[int, int]:
        """Return the places of the tensors that leave and return in a part."""

        def place(tensor: int) -> int:
            """Return 0 for tensors without a lead at the part's end, 2 for those at its start."""
            lead = []
            for k in (instant - 1, instant):
                left = self.amounts.copied[tensor][k] if k >= 0 else Fraction(0)
                back = max(
                    self.amounts.returned[gap][k] if k >= 0 else Fraction(0)
                    for gap in self.amounts.returned
                    if self.trace.gaps[gap].tensor == tensor
                    and 2 * self.trace.gaps[gap].before < instant <= 2 * self.trace.gaps[gap].after
                )
                lead.append(left - back)
            before, after = (
                lead[0] * (self.parts - done) + lead[1] * done for done in (number, number + 1)
            )
            return 0 if after == 0 else 2 if before == 0 else 1

        return {tensor: rank for rank, tensor in enumerate(sorted(both, key=place))}

    def _fill_part(
        self,
        begin: Fraction,
        end: Fraction,
        leaving: dict[int, Fraction],
        returning: dict[int, Fraction],
        order: dict[int, int],
    ) -> None:
        now = begin
        for tensor in sorted(leaving, key=lambda t: (order.get(t, len(order)), t)):
            later = now + leaving[tensor] / self.rates[Kind.OFFLOAD]
            gap = self.first_gap[tensor]
            self.pieces.append(TransferPiece(Kind.OFFLOAD, gap, now, later, leaving[tensor]))
            now = later
        now = end - sum(returning.values(), Fraction(0)) / self.rates[Kind.PREFETCH]
        tensors = {gap: self.trace.gaps[gap].tensor for gap in returning}
        for gap in sorted(returning, key=lambda g: (order.get(tensors[g], -1), -g)):
            later = now + returning[gap] / self.rates[Kind.PREFETCH]
            self.pieces.append(TransferPiece(Kind.PREFETCH, gap, now, later, returning[gap]))
            now = later


def _steps(cumulative: dict[int, list[Fraction]], instant: int) -> dict[int, Fraction]:
    """Return the amounts that move in the stretch before an instant, by tensor or gap."""
    steps = {}
    for key, amounts in cumulative.items():
        step = amounts[instant] - (amounts[instant - 1] if instant else 0)
        if step:
            steps[key] = step
    return steps


def _merged(pieces: list[TransferPiece]) -> list[TransferPiece]:
    """Join pieces of one transfer that follow each other without a pause, all at full rate."""
    joined: list[TransferPiece] = []
    last: dict[Kind, int] = {}
    for piece in sorted(pieces, key=lambda item: item.start):
        position = last.get(piece.kind)
        before = None if position is None else joined[position]
        if (
            position is not None
            and before is not None
            and (before.gap, before.end) == (piece.gap, piece.start)
        ):
            size = before.size + piece.size
            joined[position] = TransferPiece(piece.kind, piece.gap, before.start, piece.end, size)
        else:
            last[piece.kind] = len(joined)
            joined.append(piece)
    return joined
