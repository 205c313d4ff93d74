"""Allocators that know nothing of the future: residences are placed in order of time.

What a caching allocator can hope for at best when it splits and joins blocks freely (the survey of
Wilson, Johnstone, Neely and Boles, "Dynamic storage allocation", 1995, treats both).
"""

from __future__ import annotations

from offcert.core.placement import Placement, PlacementProblem
from offcert.heuristics.placement.in_order import Rule, placed_in_order


def first_fit(problem: PlacementProblem) -> Placement:
    """Place residences as they begin, each at the lowest address at which it fits."""
    return placed_in_order(problem, in_time(problem), Rule.FIRST)


def best_fit(problem: PlacementProblem) -> Placement:
    """Place residences as they begin, each in the smallest free piece in which it fits."""
    return placed_in_order(problem, in_time(problem), Rule.BEST)


def in_time(problem: PlacementProblem) -> list[int]:
    """Return residences as they begin; of those that begin together, as they are listed."""
    residences = problem.residences
    return sorted(range(len(residences)), key=lambda index: residences[index].start)
