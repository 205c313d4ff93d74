"""What every selection of checkpoints takes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offcert.core.errors import InputError
from offcert.core.trace import require_integer

Integers = NDArray[np.int64]

# Kernels add up to three totals.
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
