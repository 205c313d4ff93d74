"""A local search for addresses: smaller and smaller pools, by ejecting what is in the way.

Schedules of training steps fill the memory almost completely almost always: no order in which
residences are placed once and for all comes near the load. Here what is placed may be taken away
again. The idea, a residence that pushes out others and priorities that grow with each failure, is
that of ejection chains and of the breakout method (Morris, "The breakout method for escaping from
local minima", 1993).
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from offcert.heuristics.placement.ejection_kernel import (
    WAITING,
    Boxes,
    Floats,
    Integers,
    eject,
    fill,
    new_pool,
)
from offcert.heuristics.placement.in_order import greedy_by_area
from offcert.questions.placement.problem import Placement, PlacementProblem

# The excess of the next pool over the load, as a part of the best pool's excess. Arbitrary.
_NEXT = 0.85
# Seconds between two looks at the clock, the number of looks before a larger pool is tried, and the
# fewest and most steps between two looks. Arbitrary.
_LOOK, _PATIENCE = 0.1, 8
_FIRST_STEPS, _MOST_STEPS = 200, 50_000
# The power of a residence's area that is its weight at first. Arbitrary.
_POWER = 0.8
# The largest weight; beyond it all are divided, so that they stay exact enough. Arbitrary.
_HEAVY = 1e6


def ejection_search(
    problem: PlacementProblem,
    *,
    time_limit: float,
    seed: int = 0,
    hint: Placement | None = None,
    found: Callable[[Placement], object] | None = None,
) -> Placement:
    """Look for smaller pools, or for one within the problem's capacity.

    Parameters
    ----------
    problem : PlacementProblem
        The problem; with a capacity, the first placement within it ends the search.
    time_limit : float
        Seconds. A pool that equals the load ends the search, too.
    seed : int
        Seed of the choices among equally good addresses.
    hint : Placement, optional
        A valid placement to begin with; else residences of large area are placed first.
    found : callable, optional
        Given every better placement as soon as it is found.

    Returns
    -------
    Placement
        The best: never worse than what it began with.
    """
    until = time.monotonic() + time_limit
    best = greedy_by_area(problem) if hint is None else hint
    chosen = [index for index, size in enumerate(problem.sizes) if size > 0]
    if not chosen:
        return best
    unit = math.gcd(*(problem.sizes[index] for index in chosen))
    boxes = _boxes(problem, chosen, unit)
    pool = new_pool(boxes)
    addresses = np.array([best.addresses[index] // unit for index in chosen], np.int64)
    load = problem.load // unit
    enough = load if problem.capacity is None else max(load, problem.capacity // unit)
    least = int((addresses + boxes.size).max())
    capacity, failures, steps = _next(enough, least), 0, _FIRST_STEPS
    random = np.random.default_rng(seed)
    fill(boxes, pool, addresses, capacity)
    while least > enough and time.monotonic() < until:
        started = time.monotonic()
        eject(boxes, pool, capacity, steps, int(random.integers(2**31)))
        took = time.monotonic() - started
        if pool.counts[WAITING] == 0:
            addresses = pool.address.copy()
            least, failures = int((addresses + boxes.size).max()), 0
            best = _placement(problem, chosen, addresses, unit)
            if found is not None:
                found(best)
            capacity = _next(enough, least)
            pool.weight[:] = boxes.value
            fill(boxes, pool, addresses, capacity)
            continue
        _lighten(pool.weight)
        steps = int(min(_MOST_STEPS, max(_FIRST_STEPS, steps * _LOOK / max(took, 1e-4))))
        failures += 1
        if failures % _PATIENCE == 0:
            capacity = (capacity + least) // 2
    return best


def _next(enough: int, least: int) -> int:
    """Return the capacity to try when the best pool is `least`."""
    return enough + int((least - 1 - enough) * _NEXT)


def _boxes(problem: PlacementProblem, chosen: list[int], unit: int) -> Boxes:
    """Return sizes in units, and stretches of time counted in moments at which something begins.

    Two residences meet if and only if they do so at such a moment.
    """
    rows = [problem.residences[index] for index in chosen]
    moments = sorted({each.start for each in rows})
    first = np.array([bisect_left(moments, each.start) for each in rows], np.int64)
    last = np.array([bisect_left(moments, each.end) for each in rows], np.int64)
    size: Integers = np.array([problem.sizes[index] // unit for index in chosen], np.int64)
    value: Floats = (size.astype(np.float64) * (last - first)) ** _POWER
    return Boxes(size, first, last, value / value.mean())


def _lighten(weight: Floats) -> None:
    """Divide weights that have grown too large."""
    if weight.max() > _HEAVY:
        weight /= 1e3


def _placement(
    problem: PlacementProblem, chosen: list[int], addresses: Integers, unit: int
) -> Placement:
    found = [0] * len(problem.residences)
    for index, address in zip(chosen, addresses, strict=True):
        found[index] = int(address) * unit
    return Placement(found)
