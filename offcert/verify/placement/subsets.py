"""Residences that do not fit into less: a bound on the pool of all that there are."""

from __future__ import annotations

import math
from bisect import bisect_left

from offcert.core.placement import PlacementProblem
from offcert.proofs.placement.kinds import InfeasibleSubset
from offcert.verify.limits import Allowance
from offcert.verify.placement.stacks import Box, Stacks, TooManyPartsError


def infeasible_subset(
    problem: PlacementProblem, value: int, proof: InfeasibleSubset, allowance: Allowance
) -> str | None:
    """Return None if some residences need a pool of `value` bytes, or why that is not shown.

    Moved down as far as they go, they lie at sums of sizes: at multiples of what divides all of
    these. So one unit less is all that has to be excluded.
    """
    rows, chosen = problem.residences, proof.residences
    if any(index >= len(rows) for index in chosen):
        return f"there are {len(rows)} residences, so none is number {max(chosen)}"
    if len(set(chosen)) < len(chosen):
        return "a residence is named twice"
    align = problem.alignment
    sizes = {index: -(-rows[index].size // align) * align for index in chosen if rows[index].size}
    unit = math.gcd(*sizes.values()) or 1
    # Two residences meet if and only if one of them is there when the other begins.
    moments = sorted({rows[index].start for index in sizes})
    boxes: list[Box] = [
        (
            bisect_left(moments, rows[index].start),
            bisect_left(moments, rows[index].end),
            size // unit,
        )
        for index, size in sizes.items()
    ]
    try:
        fit = Stacks(allowance).fit(boxes, len(moments), (value - 1) // unit)
    except TooManyPartsError as error:
        return str(error)
    # No residences fit into any pool, but none is smaller than 0.
    return f"they fit into {(value - 1) // unit * unit} bytes" if fit and value > 0 else None
