"""Residences in order of something that makes them hard to place, each at the lowest free address.

What inference runtimes do (Pisarchyk and Lee, "Efficient memory management for deep neural net
inference", 2020, greedy by size and by breadth). All know the whole schedule.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from offcert.core.placement import Placement, PlacementProblem
from offcert.heuristics.placement.in_order import placed_in_order


def greedy_by_size(problem: PlacementProblem) -> Placement:
    """Place the largest residences first."""
    return _by(problem, problem.sizes)


def greedy_by_lifetime(problem: PlacementProblem) -> Placement:
    """Place the residences that last longest first; of equally long ones, the larger."""
    return _by(problem, lifetimes(problem), problem.sizes)


def greedy_by_area(problem: PlacementProblem) -> Placement:
    """Place the residences that take most memory for most time first: size times lifetime."""
    return _by(problem, areas(problem), problem.sizes)


def greedy_by_degree(problem: PlacementProblem) -> Placement:
    """Place the residences that meet most others first; of equal ones, the larger."""
    return _by(problem, degrees(problem), problem.sizes)


def lifetimes(problem: PlacementProblem) -> list[int]:
    """Return how long each residence lasts."""
    return [each.end - each.start for each in problem.residences]


def areas(problem: PlacementProblem) -> list[int]:
    """Return each residence's bytes times the time that it lasts."""
    return [a * b for a, b in zip(problem.sizes, lifetimes(problem), strict=True)]


def degrees(problem: PlacementProblem) -> list[int]:
    """Return how many others that are not empty each residence meets, itself included."""
    rows = [each for each, size in zip(problem.residences, problem.sizes, strict=True) if size > 0]
    starts = sorted(each.start for each in rows)
    ends = sorted(each.end for each in rows)
    return [
        bisect_left(starts, each.end) - bisect_right(ends, each.start)
        for each in problem.residences
    ]


def _by(problem: PlacementProblem, *keys: Sequence[int]) -> Placement:
    """Place residences with large keys first; ties keep the order of the list."""
    ranked = sorted(
        range(len(problem.residences)), key=lambda index: tuple(-key[index] for key in keys)
    )
    return placed_in_order(problem, ranked)
