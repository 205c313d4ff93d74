"""The least that whole tensors can make up, for verification; shares no code with the bounds."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

# Subset sums are told apart up to this many units; part of the bounds' definition.
FINEST = 1 << 24
# Multiplied by an odd number of 32 bits, neighbouring sizes come to lie far apart.
_MIXING, _WORD = 0x9E3779B1, 0xFFFFFFFF


def cheapest_cover(sizes: list[int], need: int) -> int:
    """Return the least subset sum of `sizes` that is at least `need`, or a lower bound on it.

    Sums are counted in units of the greatest common divisor, or, where they would need more than
    ``FINEST`` units, in coarser ones: then each size counts as its whole units only, so a subset of
    `n` sizes is taken for up to ``n * (unit - 1)`` less than it is, and the answer is no more than
    the truth.
    """
    return 0 if need == 0 else _cover(tuple(sorted(sizes)), need)


# Every bound of a certificate asks for the same covers, a long trace for thousands of them.
@lru_cache(maxsize=1 << 14)
def _cover(sizes: tuple[int, ...], need: int) -> int:
    total, divisor = sum(sizes), math.gcd(*sizes)
    coarse = total > FINEST * divisor
    unit = -(-total // FINEST) if coarse else divisor
    slack = len(sizes) * (unit - 1) if coarse else 0
    least_units = max(0, -(-(need - slack) // unit))
    if _exchange([size // unit for size in sizes], least_units):
        return max(need, least_units * unit)
    sums = 1  # bit k: some subset makes k units
    for units, copies in Counter(size // unit for size in sizes).items():
        batch = 1
        while copies:
            # Any number of equal sizes is a sum of batches of 1, 2, 4, … and a rest.
            batch = min(batch, copies)
            sums |= sums << (units * batch)
            copies -= batch
            batch *= 2
    while not sums >> least_units & 1:
        rest = sums >> least_units
        least_units += (rest ^ (rest - 1)).bit_length() - 1
    return max(need, least_units * unit)


def _exchange(units: list[int], amount: int) -> bool:
    """Name a subset that makes `amount` exactly; False if this simple way finds none.

    Whatever fits is taken, in an order that mixes large and small; then one that was taken is
    exchanged for one that is larger by just what is missing.
    """
    taken: set[int] = set()
    left: set[int] = set()
    missing = amount
    for size in sorted(units, key=lambda size: (size * _MIXING & _WORD, size)):
        chosen = size <= missing
        (taken if chosen else left).add(size)
        missing -= size if chosen else 0
    return missing == 0 or any(size + missing in left for size in taken)
