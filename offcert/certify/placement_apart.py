"""Large residences first, by a search for them alone; then all others, wherever they fit.

Training steps have many residences of a few bytes (statistics of normalisation, gradients of
biases) beside a few hundred that fill the memory. Without the small ones, sizes are multiples of
large units, and searches are short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from offcert.core.placement import Placement, PlacementProblem
from offcert.formulations.placement.skyline_search import skyline_search
from offcert.heuristics.placement.ejection import ejection_search
from offcert.heuristics.placement.in_order import placed_in_order

# Of the load, what small residences may take together, at most.
_SMALL = 0.002
# Of all residences, how many must be small.
_MANY = 0.1
# Of the load, how far above it a pool is first looked for, and the share of the time for that:
# what can be placed that closely at all is often placed at once, and slowly from afar.
_NEAR, _FIRST = 0.008, 0.6
# Of the load, how far above it a placement is worth being improved by ejection.
_CLOSE = 0.01
# Seconds from one completed placement to the next: to complete one, and to check it, takes a while.
_PAUSE = 0.5


def place_apart(
    problem: PlacementProblem,
    seconds: float,
    seed: int,
    found: Callable[[Placement], object],
) -> None:
    """Search for placements of the large residences by skyline, and complete each.

    Parameters
    ----------
    problem : PlacementProblem
        With a capacity, the search ends with the first placement of large residences within what
        small ones leave of it.
    seconds : float
        Time.
    seed : int
        Of the search.
    found : callable
        Given every placement of all residences.
    """
    parts = _parts(problem, found)
    if parts is None:
        return
    _, part, complete = parts
    until, hint = time.monotonic() + seconds, None
    if part.capacity is None:
        near = part.with_capacity(part.load + int(_NEAR * part.load))
        limit = _FIRST * seconds
        hint = skyline_search(near, time_limit=limit, seed=seed, found=complete).placement
    left = until - time.monotonic()
    skyline_search(part, time_limit=left, seed=seed, hint=hint, found=complete)


def eject_apart(
    problem: PlacementProblem,
    seconds: float,
    seed: int,
    found: Callable[[Placement], object],
    hint: Placement | None = None,
) -> None:
    """Do the same by ejection, from the placement of all that is known, if it is close.

    From others it comes less far than from large areas first.
    """
    parts = _parts(problem, found)
    if parts is None:
        return
    large, part, complete = parts
    start = None
    if hint is not None and hint.pool(problem) <= (1 + _CLOSE) * problem.load:
        start = Placement(hint.addresses[index] for index in large)
    latest = time.monotonic()

    def take(placement: Placement) -> None:
        nonlocal latest
        if time.monotonic() >= latest + _PAUSE:
            complete(placement)
            latest = time.monotonic()

    complete(ejection_search(part, time_limit=seconds, seed=seed, hint=start, found=take))


def _parts(
    problem: PlacementProblem, found: Callable[[Placement], object]
) -> tuple[list[int], PlacementProblem, Callable[[Placement], None]] | None:
    """Return the large residences, their problem, and what completes a placement of them.

    None where too few are small for that to help.
    """
    large, small = apart(problem)
    if not large or len(small) < _MANY * len(problem.residences):
        return None
    residences = problem.residences
    part = PlacementProblem(
        problem.name, [residences[index] for index in large], None, problem.alignment
    )
    if problem.capacity is not None:
        room = problem.capacity - sum(problem.sizes[index] for index in small)
        if room >= part.load:
            part = part.with_capacity(room)

    def complete(placement: Placement) -> None:
        found(completed(problem, large, small, placement))

    return large, part, complete


def apart(problem: PlacementProblem) -> tuple[list[int], list[int]]:
    """Return the large residences, and the small ones: as many as take little of the load."""
    sizes = problem.sizes
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    # The fewest that are small, and the most.
    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        some = [problem.residences[index] for index in order[:middle]]
        load = PlacementProblem(problem.name, some, None, problem.alignment).load
        if load <= _SMALL * problem.load:
            low = middle
        else:
            high = middle - 1
    return sorted(order[low:]), order[:low]


def completed(
    problem: PlacementProblem, large: Sequence[int], small: Sequence[int], placement: Placement
) -> Placement:
    """Place large residences in order of their addresses, then small ones, largest first.

    None of the large ones moves up.
    """
    address = dict(zip(large, placement.addresses, strict=True))
    order = sorted(large, key=lambda index: address[index])
    order += sorted(small, key=lambda index: -problem.sizes[index])
    return placed_in_order(problem, order)
