"""What is left of a region once all that is too long has been taken away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offcert.formulations.labels.outward.evaluation import USUAL_ROOM, Evaluation, Evaluator
from offcert.formulations.labels.outward.model import CutProblem
from offcert.formulations.labels.outward.region import Counts, Region
from offcert.formulations.labels.outward.sums import (
    Sets,
    hull,
    sets_of,
    squeeze,
    with_most_ticks,
)


@dataclass(frozen=True)
class Remains:
    """The part of a region that may hold schedules within the limit.

    Attributes
    ----------
    region : Region
        That part.
    evaluation : Evaluation
        Of it.
    sets : Sets or None
        All that are left; None if they are too many.
    ticks : pair of int
        In which what is out leaves, and returns, at least.
    """

    region: Region
    evaluation: Evaluation
    sets: Sets | None
    ticks: tuple[int, int]


def few_sets(pivot: CutProblem, region: Region, limit: int, most: int) -> list[Counts] | None:
    """Return all sets of a region that bytes and link time admit; None if it is one, or too many.

    Parameters
    ----------
    pivot : CutProblem
        What is searched.
    region : Region
        Where schedules are looked for.
    limit : int
        Ticks.
    most : int
        More sets than this are too many.
    """
    if region.is_one():
        return None
    smaller = squeeze(pivot, with_most_ticks(pivot, region, limit), limit)
    if smaller is None:
        return []
    sets = sets_of(pivot, smaller, limit, limit)
    if sets is None or len(sets) > most:
        return None
    return sorted(tuple(row) for row in sets.counts.tolist())


def examine(
    evaluator: Evaluator,
    region: Region,
    limit: int,
    window: int,
    ticks: tuple[int, int] = (0, 0),
    room: int = USUAL_ROOM,
) -> Remains | None:
    """Take away from a region what cannot hold schedules within a limit; None if nothing is left.

    Parameters
    ----------
    evaluator : Evaluator
        Of a pivot.
    region : Region
        Where schedules are looked for.
    limit : int
        Ticks.
    window : int
        Bytes that are followed outward.
    ticks : pair of int
        In which what is out is known to leave, and to return, at least.
    room : int
        Labels that a search of one side may store.
    """
    pivot = evaluator.pivot
    while True:
        # A single set is searched at once.
        one = region.is_one()
        smaller = region if one else squeeze(pivot, with_most_ticks(pivot, region, limit), limit)
        if smaller is None:
            return None
        evaluation = evaluator.evaluate(smaller, limit, window, ticks, room)
        if evaluation is None:
            return None
        left = limit - evaluation.idle
        smaller = with_most_ticks(pivot, smaller, left)
        if smaller.most < smaller.least:
            return None
        sets = sets_of(pivot, smaller, left, limit)
        remains = Remains(smaller, evaluation, sets, ticks)
        if sets is not None:
            if len(sets) == 0:
                return None
            away, back = np.maximum(sets.ticks.min(axis=1), ticks).tolist()
            remains = Remains(hull(pivot, smaller, sets), evaluation, sets, (away, back))
        if remains.region == region and remains.ticks == ticks:
            return remains
        region, ticks = remains.region, remains.ticks
