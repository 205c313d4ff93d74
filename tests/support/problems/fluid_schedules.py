"""Schedules in pieces for the checker of these: valid ones, and ones tampered with in many ways."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, Transfer, TransferPiece
from support.problems.schedules import cases

Case = tuple[Problem, FluidSchedule]


def fluid_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Yield so many problems with a schedule in pieces; about one in four is valid."""
    for index, (problem, schedule) in enumerate(cases(count, seed)):
        rng = random.Random(f"{seed} {index}")
        transfers = rng.choice((Transfers.INTERRUPTIBLE, Transfers.FRACTIONAL))
        pieces = [
            part for transfer in schedule.transfers for part in _parts(rng, problem, transfer)
        ]
        for _ in range(rng.choice((0, 0, 1, 3))):
            pieces = _damaged(rng, pieces)
        if transfers is Transfers.FRACTIONAL and rng.random() < 0.5:
            pieces = _some_of_each(rng, pieces)
        fluid = FluidSchedule(schedule.starts, schedule.ends, pieces)
        yield replace(problem, transfers=transfers), fluid


def _parts(rng: random.Random, problem: Problem, transfer: Transfer) -> list[TransferPiece]:
    """Cut a transfer into pieces that are equally fast, without pauses between them."""
    gaps = problem.trace.gaps
    size = problem.trace.gap_size(transfer.gap) if 0 <= transfer.gap < len(gaps) else 1
    start, length = Fraction(transfer.start), Fraction(transfer.end - transfer.start)
    cuts = sorted({Fraction(0), Fraction(1), *(Fraction(rng.randint(1, 6), 7) for _ in range(2))})
    return [
        TransferPiece(
            transfer.kind, transfer.gap, start + a * length, start + b * length, size * (b - a)
        )
        for a, b in pairwise(cuts)
    ]


def _damaged(rng: random.Random, pieces: list[TransferPiece]) -> list[TransferPiece]:
    if not pieces:
        return pieces
    pieces = list(pieces)
    index = rng.randrange(len(pieces))
    piece, by = pieces[index], Fraction(rng.randint(-6, 6), rng.choice((1, 2, 3)))
    changed = rng.choice(
        (
            replace(piece, start=piece.start + by, end=piece.end + by),
            replace(piece, start=piece.start + by, end=piece.end + by),
            replace(piece, end=piece.end + by),
            replace(piece, size=piece.size + by),
            replace(piece, gap=piece.gap + rng.choice((-1, 1))),
            replace(piece, kind=rng.choice(tuple(Kind))),
            replace(piece, start=float(piece.start)) if rng.random() < 0.2 else None,  # type: ignore[arg-type]
            None,
        )
    )
    pieces[index : index + 1] = [changed] if changed is not None else []
    return pieces


def _some_of_each(rng: random.Random, pieces: list[TransferPiece]) -> list[TransferPiece]:
    """Move only a part of each gap's bytes, back no more than out."""
    share = {piece.gap: Fraction(rng.randint(1, 4), 4) for piece in pieces}
    return [
        replace(piece, size=piece.size * share[piece.gap])
        if piece.kind is Kind.PREFETCH or rng.random() < 0.2
        else piece
        for piece in pieces
    ]
