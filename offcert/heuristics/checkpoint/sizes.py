"""The least bytes to store if no segment may exceed a limit: O(n) by a queue, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import plain_inner
from offcert.core.errors import InputError
from offcert.core.trace import require_integer

Integers = NDArray[np.int64]

# The largest total of sizes. Derived: kernels add up to three totals in 64 bits.
LARGEST_SUM = 2**60


@dataclass(frozen=True, slots=True)
class Selection:
    """The data of a chain that are stored from the first forward pass on.

    Attributes
    ----------
    checkpoints : tuple of int
        Indices of the stored data, increasing; 0 and n are the first and the last.
    memory : int
        Bytes that this takes under the memory model for which the algorithm selects.
    """

    checkpoints: tuple[int, ...]
    memory: int


def size_array(sizes: Sequence[int], field: str = "sizes") -> Integers:
    """Return ``d_0 … d_n`` as an array of ``int64``.

    Parameters
    ----------
    sizes : sequence of int
        Bytes, at least two of them: the input, and the output of at least one layer.
    field : str
        Name for error messages.

    Raises
    ------
    InputError
        If there are fewer, one of them is no integer or negative, or they sum to 2**60 or more.
    """
    if len(sizes) < 2:
        raise InputError(f"{field} must have at least 2 entries, not {len(sizes)}")
    for index, size in enumerate(sizes):
        require_integer(size, f"{field}[{index}]", 0)
    total = sum(map(int, sizes))
    if total >= LARGEST_SUM:
        raise InputError(f"{field} must sum to less than 2**60 bytes, not {total}")
    return np.array(sizes, dtype=np.int64)


def gradient_array(sizes: Integers, gradients: Sequence[int] | None) -> Integers:
    """Return the sizes of the gradients of ``d_0 … d_n``; by default those of the data.

    Raises
    ------
    InputError
        As `size_array`, or if there are not as many of them.
    """
    if gradients is None:
        return sizes
    array = size_array(gradients, "gradients")
    if len(array) != len(sizes):
        raise InputError(f"gradients must have {len(sizes)} entries, not {len(array)}")
    return array


def path(following: Integers) -> tuple[int, ...]:
    """Return the checkpoints from 0 to n of which each names the next."""
    last = len(following) - 1
    checkpoints = [0]
    while checkpoints[-1] != last:
        checkpoints.append(int(following[checkpoints[-1]]))
    return tuple(checkpoints)


def path_back(previous: Integers) -> tuple[int, ...]:
    """Return the checkpoints from 0 to n of which each names the one before."""
    checkpoints = [len(previous) - 1]
    while checkpoints[-1] != 0:
        checkpoints.append(int(previous[checkpoints[-1]]))
    return tuple(reversed(checkpoints))


# Rows of the scratch array. By definition.
STORED, PREVIOUS, QUEUE = 0, 1, 2
ROWS = 3


@plain_inner
def least_stored(sizes: Integers, totals: Integers, limit: int, scratch: Integers) -> int:
    """Return the least bytes of checkpoints between which lie at most `limit` bytes each.

    ``STORED`` of `i` is the least for ``d_0 … d_i`` with both ends stored: ``d_i`` and the least
    of those `h` for which ``d_{h+1} … d_{i-1}`` sum to at most the limit. These `h` are a window
    that moves to the right, and those that may still become its least wait in a queue (selection
    paper, Algorithm 3).

    Parameters
    ----------
    sizes, totals : int64 arrays, shape (n+1,)
        ``d_i``, and the sum of all up to and with ``d_i``.
    limit : int
        Bytes, at least 0.
    scratch : int64 array, shape (ROWS, n+1)
        Written: ``STORED``; ``PREVIOUS``, the checkpoint before each; ``QUEUE``.
    """
    stored, previous, queue = scratch[STORED], scratch[PREVIOUS], scratch[QUEUE]
    stored[0] = sizes[0]
    queue[0] = 0
    head, tail = 0, 1
    for i in range(1, len(sizes)):
        while totals[i - 1] - totals[queue[head]] > limit:
            head += 1
        best = queue[head]
        previous[i] = best
        stored[i] = sizes[i] + stored[best]
        while tail > head and stored[queue[tail - 1]] >= stored[i]:
            tail -= 1
        queue[tail] = i
        tail += 1
    return int(stored[len(sizes) - 1])
