"""Brute force: the least pool of a tiny placement problem, over every order of stacking.

Residences are taken in some order, and each is put upon all that meet it in time and are there
already. For one order that gives a least pool: take a placement with a least pool, and its order by
addresses. Then nothing comes to lie higher than it does there. For let this hold for all that are
there already. Each of them that meets the next one lies below it in that placement, for it does not
lie higher and they share no byte; so it ends, there and all the more here, where the next one
begins there, or before. Hence putting the next one upon all of them lifts it no higher than there.

(The same holds of first fit, which puts nothing higher than that.)
"""

from __future__ import annotations

from collections.abc import Sequence

from offcert.questions.placement.problem import Placement, PlacementProblem


def least_pool(problem: PlacementProblem) -> int:
    """Return the least pool; up to about eight residences."""
    return _least(problem)[0]


def least_placement(problem: PlacementProblem) -> Placement:
    """Return a placement with the least pool."""
    return Placement(_least(problem)[1])


def _least(problem: PlacementProblem) -> tuple[int, Sequence[int]]:
    sizes, residences = problem.sizes, problem.residences
    count = len(residences)
    meets = [[one.meets(other) for other in residences] for one in residences]
    best: tuple[int, Sequence[int]] = (sum(sizes) + 1, [0] * count)

    def go(placed: dict[int, int], pool: int) -> None:
        nonlocal best
        if pool >= best[0]:
            return
        if len(placed) == count:
            best = (pool, [placed[index] for index in range(count)])
            return
        for index in range(count):
            if index not in placed:
                address = max(
                    (at + sizes[other] for other, at in placed.items() if meets[index][other]),
                    default=0,
                )
                go(placed | {index: address}, max(pool, address + sizes[index]))

    go({}, 0)
    return best
