"""A replay of transfers in pieces, from each moment at which a rate changes to the next.

Bytes that have left and come back are summed up stretch by stretch, and looked at where stretches
end and in their middle, so that no argument about where memory is fullest is needed. It shares no
code with `offcert.questions.schedule.check_fluid`, of which it is the oracle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, TransferPiece
from support.oracles.replay import wrong_numbers, wrong_operations
from support.oracles.slow_links import rates_of


class Replayed(NamedTuple):
    """Names of broken rules; and most bytes, if too many, before or during which operation."""

    broken: set[str]
    full: set[tuple[str, int, Fraction]]


class _Moment(NamedTuple):
    """Bytes by then: by tensor those that have left, by gap those that have come back."""

    time: Fraction
    left: dict[int, Fraction]
    back: dict[int, Fraction]


def replay_pieces(problem: Problem, schedule: FluidSchedule) -> Replayed:
    """Replay a schedule; its fullest moments are of use only if nothing is broken."""
    if problem.transfers is Transfers.ATOMIC:
        return Replayed({"atomic"}, set())
    broken = wrong_numbers(problem, schedule)
    if not all(_is_piece(problem, piece) for piece in schedule.pieces):
        broken.add("numbers")
    if broken:
        return Replayed(broken, set())
    moments = list(_moments(problem, schedule))
    broken = wrong_operations(problem, schedule) | _wrong_pieces(problem, schedule)
    broken |= _wrong_link(problem, schedule)
    gaps = problem.trace.gaps
    if any(each.back[gap] > each.left[gaps[gap].tensor] for each in moments for gap in each.back):
        broken.add("early")
    return Replayed(broken, set() if broken else _full(problem, schedule, moments))


def _is_piece(problem: Problem, piece: TransferPiece) -> bool:
    exact = {type(piece.start), type(piece.end), type(piece.size)} == {Fraction}
    known = piece.kind in list(Kind) and piece.gap in range(len(problem.trace.gaps))
    return exact and known and piece.size > 0 and piece.start < piece.end


def _wrong_pieces(problem: Problem, schedule: FluidSchedule) -> set[str]:
    """Name the rules about pieces alone, and about all of a tensor or gap, that are broken."""
    trace, broken, totals = problem.trace, set(), defaultdict[tuple[Kind, int], Fraction](Fraction)
    ended = {-1: 0, **dict(enumerate(schedule.ends))}
    returning = {piece.gap for piece in schedule.pieces if piece.kind is Kind.PREFETCH}
    for piece in schedule.pieces:
        gap = trace.gaps[piece.gap]
        uses = trace.tensors[gap.tensor].uses
        if piece.kind is Kind.OFFLOAD:
            totals[piece.kind, gap.tensor] += piece.size
            broken |= {"written"} if piece.start < ended[uses[0]] else set()
            broken |= {"gone"} if piece.end > ended[uses[-1]] else set()
            siblings = [g for g in returning if trace.gaps[g].tensor == gap.tensor]
            broken |= set() if piece.gap in siblings and piece.gap <= min(siblings) else {"first"}
        else:
            totals[piece.kind, piece.gap] += piece.size
            broken |= {"opened"} if piece.start < ended[gap.before] else set()
            broken |= {"needed"} if piece.end > schedule.starts[gap.after] else set()
    for (kind, number), total in totals.items():
        tensor = number if kind is Kind.OFFLOAD else trace.gaps[number].tensor
        rest = trace.tensors[tensor].size - total
        if rest < 0 or (rest and problem.transfers is Transfers.INTERRUPTIBLE):
            broken.add("amount")
    return broken


def _wrong_link(problem: Problem, schedule: FluidSchedule) -> set[str]:
    """Say whether pieces are too fast, or two are on a link at once that has room for one."""
    rates = [alone for alone, _ in rates_of(problem)]
    fast = any(
        piece.size / (piece.end - piece.start) > rates[list(Kind).index(piece.kind)]
        for piece in schedule.pieces
    )
    broken = {"rate"} if fast else set()
    for begin, end in pairwise(sorted({t for p in schedule.pieces for t in (p.start, p.end)})):
        kinds = [p.kind for p in schedule.pieces if p.start <= begin and end <= p.end]
        if len(kinds) > (len(set(kinds)) if problem.platform.duplex else 1):
            broken.add("link")
    return broken


def _moments(problem: Problem, schedule: FluidSchedule) -> Iterator[_Moment]:
    times = {Fraction(t) for row in (schedule.starts, schedule.ends) for t in (0, *row)}
    times |= {t for piece in schedule.pieces for t in (piece.start, piece.end)}
    times |= {(a + b) / 2 for a, b in pairwise(sorted(times))}
    left: dict[int, Fraction] = defaultdict(Fraction)
    back: dict[int, Fraction] = defaultdict(Fraction)
    before = min(times)
    for now in sorted(times):
        for piece in schedule.pieces:
            if piece.start < now <= piece.end:
                moved = piece.size / (piece.end - piece.start) * (now - before)
                if piece.kind is Kind.OFFLOAD:
                    left[problem.trace.gaps[piece.gap].tensor] += moved
                else:
                    back[piece.gap] += moved
        yield _Moment(now, left.copy(), back.copy())
        before = now


def _full(
    problem: Problem, schedule: FluidSchedule, moments: list[_Moment]
) -> set[tuple[str, int, Fraction]]:
    found, ended = set(), 0
    for number, (start, end) in enumerate(zip(schedule.starts, schedule.ends, strict=True)):
        for word, begin, until in (("before", ended, start), ("during", start, end)):
            most = max(
                _held(problem, word, number, moment, moments[-1].back)
                for moment in moments
                if begin <= moment.time <= until
            )
            if most > problem.platform.memory:
                found.add((word, number, most))
        ended = end
    return found


def _held(
    problem: Problem, word: str, number: int, moment: _Moment, all_back: dict[int, Fraction]
) -> Fraction:
    """Return the bytes held before or during an operation, tensor by tensor."""
    running = word == "during"
    held = Fraction(problem.trace.operations[number].workspace if running else 0)
    for index, tensor in enumerate(problem.trace.tensors):
        past = [use for use in tensor.uses if use < number]
        ahead = [use for use in tensor.uses if use >= number]
        if running and number in tensor.uses:
            held += tensor.size
        elif past and ahead:
            held += tensor.size
            gap = problem.trace.gap_numbers.get((index, past[-1], ahead[0]))
            if gap is not None:
                # In the order in which bytes leave; those that return are the first.
                away = min(moment.left[index], all_back[gap]) - moment.back[gap]
                held -= max(away, Fraction(0))
    return held
