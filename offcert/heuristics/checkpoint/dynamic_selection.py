"""The selection paper's Algorithm 5: the least dynamic memory (its Eq. 9) in O(n²), compiled.

Read as follows: the recursion (13) starts from ``M(0)``, as ``d_0`` is a checkpoint, and the next
checkpoint `j` may be `n`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offcert.core.compiled import plain
from offcert.heuristics.checkpoint.sizes import (
    Integers,
    Selection,
    gradient_array,
    path,
    size_array,
)


def dynamic_selection(sizes: Sequence[int], gradients: Sequence[int] | None = None) -> Selection:
    """Return checkpoints of least dynamic memory, by trying every next checkpoint of each.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of ``d_0 … d_n``.
    gradients : sequence of int, optional
        Bytes of their gradients, of which a segment's buffer holds the largest; by default those of
        the data, as in the paper. An input that needs no gradient has one of 0 bytes.

    Returns
    -------
    Selection
        Its memory is that of Eq. (9): while a segment is served, all checkpoints up to its right
        one, its data, and a buffer for the largest gradient of its data and its left checkpoint.

    Raises
    ------
    InputError
        If the sizes are no sizes, or there are not as many gradients.
    """
    array = size_array(sizes)
    following = np.zeros(len(array), np.int64)
    memory = np.zeros(len(array), np.int64)
    best_next(array, gradient_array(array, gradients), memory, following)
    return Selection(path(following), int(memory[0]))


@plain
def best_next(sizes: Integers, gradients: Integers, memory: Integers, following: Integers) -> None:
    """Write ``M(i)`` and the next checkpoint after each `i`."""
    last = len(sizes) - 1
    memory[last] = sizes[last]
    for i in range(last - 1, -1, -1):
        between, buffer = 0, gradients[i]
        least = -1
        for j in range(i + 1, last + 1):
            needed = max(memory[j], between + buffer + sizes[j])
            if least < 0 or needed < least:
                least, following[i] = needed, j
            between += sizes[j]
            buffer = max(buffer, gradients[j])
        memory[i] = sizes[i] + least
