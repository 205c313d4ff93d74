"""Chen's rule: segments of √n layers each.

Tianqi Chen, Bing Xu, Chiyuan Zhang and Carlos Guestrin, *Training Deep Nets with Sublinear Memory
Cost*, 2016, §4.1. It is optimal up to rounding if all sizes are equal, and knows no sizes else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from offcert.heuristics.checkpoint.budget_search import chen_memory
from offcert.heuristics.checkpoint.sizes import Selection, size_array


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
