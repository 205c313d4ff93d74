"""Exchanges of a few tensors for others of nearly the same total size.

What must be off the device is a sum of sizes, and a set that exceeds it by half a tensor pays for
that twice on the link. Sets of little excess are rare and far apart: no exchange of single tensors
leads from one to the next, an exchange of two 98s for four 49s does. So these exchanges are listed
once, the nearest sums first, and a search draws from the beginning of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

# Tensors on one side of an exchange and on the other.
FEW, MANY = 2, 3
# Combinations of tensors that are formed, and exchanges that are kept, at most.
_MOST_COMBINATIONS = 20_000
_MOST_EXCHANGES = 100_000
# Sums that differ by more than the largest size over this are not exchanged.
_COARSEST = 8
# Tensors smaller than the largest size over this are left out: they hardly change a sum.
_FINEST = 2_000


@dataclass(frozen=True)
class Exchanges:
    """Exchanges in the order of their differences; unused places hold class -1.

    Attributes
    ----------
    classes, changes : int64 array, shape (N, FEW + MANY)
        Which counts change, and by how much. With all signs turned round it is an exchange too.
    differences : int64 array, shape (N,)
        Bytes by which the sum changes, without sign, increasing.
    """

    classes: Integers
    changes: Integers
    differences: Integers


def exchanges(sizes: Sequence[int], amounts: Sequence[int]) -> Exchanges:
    """Return exchanges between classes of equal tensors.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of a tensor of each class, positive.
    amounts : sequence of int
        How many there are.
    """
    usable = [c for c, size in enumerate(sizes) if size * _FINEST > max(sizes)]
    few = _combinations(usable, sizes, amounts, FEW)
    many = _combinations(usable, sizes, amounts, MANY)
    sums = np.array([total for total, _ in many], dtype=np.int64)
    own = np.array([total for total, _ in few], dtype=np.int64)
    tolerance = max(sizes, default=0) // _COARSEST
    while tolerance > 0 and _pairs(own, sums, tolerance) > _MOST_EXCHANGES:
        tolerance //= 2
    found = []
    for total, taken in few:
        low, high = np.searchsorted(sums, [total - tolerance, total + tolerance + 1])
        for other, given in many[low:high][:_MOST_EXCHANGES]:
            if not set(taken) & set(given) and (taken or given):
                found.append((abs(total - other), taken, given))
    found.sort()
    return _table(found[:_MOST_EXCHANGES])


def _combinations(
    usable: Sequence[int], sizes: Sequence[int], amounts: Sequence[int], most: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the combinations of up to `most` tensors, as sorted pairs of a sum and classes.

    Where there are too many, only those of fewer tensors.
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    numbers = _numbers([amounts[c] for c in usable], most)
    for count in range(most + 1):
        if count > 1 and len(found) + numbers[count] > _MOST_COMBINATIONS:
            break
        found += (
            (sum(sizes[c] for c in chosen), chosen)
            for chosen in combinations_with_replacement(usable, count)
            if all(chosen.count(c) <= amounts[c] for c in chosen)
        )
    return sorted(found)


def _numbers(amounts: Sequence[int], most: int) -> list[int]:
    """Return how many combinations of 0, 1, …, `most` tensors the amounts of each class allow."""
    numbers = [1] + [0] * most
    for amount in amounts:
        numbers = [sum(numbers[max(0, k - amount) : k + 1]) for k in range(most + 1)]
    return numbers


def _pairs(own: Integers, sums: Integers, tolerance: int) -> int:
    low = np.searchsorted(sums, own - tolerance)
    high = np.searchsorted(sums, own + tolerance + 1)
    return int((high - low).sum())


def _table(found: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> Exchanges:
    classes = np.full((len(found), FEW + MANY), -1, dtype=np.int64)
    changes = np.zeros((len(found), FEW + MANY), dtype=np.int64)
    for row, (_, taken, given) in enumerate(found):
        for side, sign in ((taken, -1), (given, 1)):
            for c in dict.fromkeys(side):
                place = int((classes[row] >= 0).sum())
                classes[row, place] = c
                changes[row, place] = sign * side.count(c)
    differences = np.array([difference for difference, _, _ in found], dtype=np.int64)
    return Exchanges(classes, changes, differences)
