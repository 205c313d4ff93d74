"""Chen's rule: segments of √n layers each.

Tianqi Chen, Bing Xu, Chiyuan Zhang and Carlos Guestrin, *Training Deep Nets with Sublinear Memory
Cost*, 2016, §4.1. It is optimal up to rounding if all sizes are equal, and knows no sizes else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from offcert.heuristics.checkpoint.sizes import Selection, size_array

# Budgets that are tried: few are enough, as the pass does the same for many budgets. Arbitrary.
BUDGETS = 6


def budget_search(
    sizes: Sequence[int],
    budgets: int | None = BUDGETS,
    measure: Callable[[Sequence[int]], int] | None = None,
) -> Selection:
    """Return the best selection of the greedy pass over all budgets that are tried.

    With budget 0 everything is stored: `x` bytes between segments, the largest segment of `y`.
    Then budgets from ``√(xy/2)`` to ``√(2xy)`` are tried at equal distances.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of ``d_0 … d_n``.
    budgets : int or None
        How many budgets are tried beside 0; None for every budget that makes a difference.
    measure : callable, optional
        What is minimised, as a function of the checkpoints; by default Chen's memory. The authors
        used what their allocator needed.

    Returns
    -------
    Selection
        The one with the least measure, and that measure.

    Raises
    ------
    InputError
        If the sizes are no sizes.
    """
    plain = [int(size) for size in size_array(sizes)]
    cost = measure or (lambda checkpoints: chen_memory(plain, checkpoints))
    tried = _all(plain) if budgets is None else (_greedy(plain, b) for b in _grid(plain, budgets))
    found = ((cost(checkpoints), checkpoints) for checkpoints in tried)
    memory, checkpoints = min(found, key=lambda each: each[0])
    return Selection(checkpoints, memory)


def chen_memory(sizes: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Return the bytes stored between segments, and those of the largest segment.

    A segment counts with the checkpoint that ends it (``temp`` of the published algorithm). The
    input and the output of the chain are not between segments.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of ``d_0 … d_n``.
    checkpoints : sequence of int
        Increasing, from 0 to n.
    """
    totals = list(accumulate(sizes))
    between = sum(sizes[checkpoint] for checkpoint in checkpoints[1:-1])
    return between + max(totals[i] - totals[h] for h, i in pairwise(checkpoints))


def _grid(sizes: Sequence[int], budgets: int) -> Iterator[int]:
    """Yield 0, and some budgets around the guess that follows from it."""
    yield 0
    product = sum(sizes[1:-1]) * max(sizes[1:])
    low, high = math.isqrt(product // 2), math.isqrt(2 * product)
    for index in range(budgets):
        yield low + (high - low) * index // max(1, budgets - 1)


def _greedy(sizes: Sequence[int], budget: int) -> tuple[int, ...]:
    checkpoints, segment = [0], 0
    last = len(sizes) - 1
    for index in range(1, last):
        segment += sizes[index]
        if segment > budget:
            checkpoints.append(index)
            segment = 0
    return (*checkpoints, last)


def _all(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every selection that some budget gives, from the one that stores most.

    The pass does the same for all budgets below the least segment that it ends.
    """
    totals = list(accumulate(sizes))
    budget = 0
    while True:
        checkpoints = _greedy(sizes, budget)
        yield checkpoints
        if len(checkpoints) == 2:
            return
        budget = min(totals[i] - totals[h] for h, i in pairwise(checkpoints[:-1]))


def sqrt_rule(sizes: Sequence[int]) -> Selection:
    """Store every ``⌈√n⌉``-th of the data.

    Rounding up gives the sets that the selection paper lists for this rule (its Table 2).

    Parameters
    ----------
    sizes : sequence of int
        Bytes of ``d_0 … d_n``.

    Returns
    -------
    Selection
        Its memory is Chen's: `offcert.heuristics.checkpoint.budget_search.chen_memory`.

    Raises
    ------
    InputError
        If the sizes are no sizes.
    """
    array = size_array(sizes)
    layers = len(array) - 1
    step = math.isqrt(layers - 1) + 1
    checkpoints = (*range(0, layers, step), layers)
    return Selection(checkpoints, chen_memory(sizes, checkpoints))
