"""The least pool, or a placement within a capacity, with a bound where all is seen."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from offcert.core.result import Bound
from offcert.formulations.placement.sections import Integers, Sections
from offcert.formulations.placement.skyline import Answer, Skyline, least_capacity
from offcert.proofs.placement_certificate import searched
from offcert.questions.placement.problem import Placement, PlacementOutcome, PlacementProblem

# The name of its bounds.
SKYLINE = "skyline"


def skyline_search(
    problem: PlacementProblem,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    hint: Placement | None = None,
    bound: int = 0,
    found: Callable[[Placement], object] | None = None,
) -> PlacementOutcome:
    """Find the least pool, or any placement within the problem's capacity.

    Parameters
    ----------
    problem : PlacementProblem
        The problem; with a capacity, any placement within it ends the search.
    time_limit : float
        Seconds.
    seed : int
        Seed of the order in which boxes are tried.
    hint : Placement, optional
        A valid placement; only smaller pools are of interest.
    bound : int
        Bytes; a bound on the pool that is already known.
    found : callable, optional
        Given every better placement as soon as it is found.

    Returns
    -------
    PlacementOutcome
        Its bound, if it is better than the load and `bound`, is what the search has excluded.
    """
    until = time.monotonic() + time_limit
    sections = Sections(problem)
    unit, least = sections.unit, max(problem.load, bound)
    if len(sections) == 0:
        return PlacementOutcome(Placement([0] * len(problem.residences)), (), True)
    best = hint

    def take(addresses: Integers) -> None:
        nonlocal best
        best = sections.placement(addresses)
        if found is not None:
            found(best)

    lower = -(-least // unit)
    # All boxes, one above the other, are a placement, too.
    total = int(sections.size.sum())
    upper = total if hint is None else min(total, -(-hint.pool(problem) // unit))
    skyline = Skyline(sections, seed)
    if problem.capacity is not None:
        lower, complete = _within(skyline, lower, problem.capacity // unit, until, take)
    else:
        if hint is None:
            take(np.cumsum(sections.size) - sections.size)
        lower, upper = least_capacity(skyline, lower, upper, until, take)
        complete = lower == upper
    bounds: tuple[Bound, ...] = ()
    if lower * unit > least:
        bounds = (searched(SKYLINE, lower * unit, {"nodes": skyline.nodes}),)
    return PlacementOutcome(best, bounds, complete)


def _within(
    skyline: Skyline, lower: int, capacity: int, until: float, take: Callable[[Integers], None]
) -> tuple[int, bool]:
    """Look for any placement within a capacity; return the bound, and whether all was decided."""
    if lower > capacity:
        return lower, True
    while time.monotonic() < until:
        answer = skyline.attempt(capacity, until)
        if answer is Answer.FOUND:
            take(skyline.addresses)
            return lower, True
        if answer is Answer.NONE:
            return capacity + 1, True
    return lower, False
