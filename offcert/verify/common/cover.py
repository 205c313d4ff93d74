"""The least that whole tensors can make up, for verification; shares no code with the bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# Units up to which subset sums are told apart. By definition: the bounds depend on it.
FINEST = 1 << 24
# A multiplier and a mask of 32 bits: multiplied by an odd number, neighbouring sizes come to lie
# far apart. Given by Knuth's multiplicative hash, the golden ratio in 32 bits.
_MIXING, _WORD = 0x9E3779B1, 0xFFFFFFFF
# Sizes of which the pairs are looked at. Arbitrary.
_PAIRED = 64
# Sizes whose sums are listed one by one; fewest and most sizes of which all sums are looked at, and
# the units up to which. Arbitrary.
_LISTED = 14
_FEWEST, _MOST, _FAR = 24, 64, 1 << 20

Sizes = NDArray[np.int64]


def cheapest_cover(sizes: list[int], need: int) -> int:
    """Return the least subset sum of `sizes` that is at least `need`, or a lower bound on it.

    Sums are counted in units of the greatest common divisor, or, where they would need more than
    ``FINEST`` units, in coarser ones: then each size counts as its whole units only, so a subset of
    `n` sizes is taken for up to ``n * (unit - 1)`` less than it is, and the answer is no more than
    the truth.
    """
    return 0 if need == 0 else _cover(tuple(sorted(sizes)), need)


# Those who examine the two sides of a cut ask for the same covers again and again.
@lru_cache(maxsize=1 << 12)
def _cover(sizes: tuple[int, ...], need: int) -> int:
    covers = Covers(sizes)
    covers.present[:] = True
    return covers.cheapest(need)


class Covers:
    """The covers of a set that changes, among sizes that are known: each as `cheapest_cover`.

    Parameters
    ----------
    sizes : sequence of int
        Positive, their sum below 2**61.
    finest : int, optional
        Up to how many units sums are told apart; by default ``FINEST``.

    Attributes
    ----------
    place : list of int
        Where in `present` each of the sizes stands.
    present : bool array
        Whether the set has each of them; none at first, to be set by the caller.
    """

    def __init__(self, sizes: Sequence[int], finest: int | None = None) -> None:
        self.finest = FINEST if finest is None else finest
        # Small and large come mixed, whatever order the sizes have.
        keys = [(size * _MIXING & _WORD, size, index) for index, size in enumerate(sizes)]
        order = [index for *_, index in sorted(keys)]
        self.place = [0] * len(sizes)
        for place, index in enumerate(order):
            self.place[index] = place
        self.present = np.zeros(len(sizes), dtype=np.bool_)
        self._sizes = np.array([sizes[index] for index in order], dtype=np.int64)
        self._sums: tuple[bytes, int] = (b"", 1)

    def cheapest(self, need: int) -> int:
        """Return the least sum of a subset that is at least `need`, as `cheapest_cover` does."""
        if need == 0:
            return 0
        sizes = self._sizes[self.present]
        total = int(sizes.sum())
        divisor = int(np.gcd.reduce(sizes))
        coarse = total > self.finest * divisor
        unit = -(-total // self.finest) if coarse else divisor
        slack = len(sizes) * (unit - 1) if coarse else 0
        least = max(0, -(-(need - slack) // unit))
        units = sizes // unit
        # Coarse sums from there up to the need count as the need, so one of these is enough.
        if not _reached(units, least, max(least, need // unit)):
            least = self._least_sum(units, least)
        return max(need, least * unit)

    def _least_sum(self, units: Sizes, amount: int) -> int:
        """Return the least sum of a subset that is at least `amount`."""
        if len(units) <= _LISTED:
            listed = units[:0].sum(keepdims=True)
            for size in units:
                listed = np.concatenate((listed, listed + size))
            return int(listed[listed >= amount].min())
        total = int(units.sum())
        if 2 * amount > total:
            # What the subset leaves out has the greatest sum of at most the rest.
            sums = self._all_sums(units) & ((1 << (total - amount + 1)) - 1)
            return total - (sums.bit_length() - 1)
        sums = self._all_sums(units) >> amount
        return amount + (sums & -sums).bit_length() - 1

    def _all_sums(self, units: Sizes) -> int:
        """Return all sums of subsets up to half of the total and one size more, as bits."""
        key = units.tobytes()
        if self._sums[0] != key:
            self._sums = key, _sums(Counter(units.tolist()))
        return self._sums[1]


def _sums(counted: Counter[int]) -> int:
    """Return which sums subsets have, up to half of the total and the largest size: bit k for k."""
    # A least sum that is enough would not be without its last member: no larger sum is asked for.
    width = counted.total() and sum(counted.elements()) // 2 + max(counted) + 1
    window = (1 << width) - 1
    sums, reach = 1, 0
    for units, copies in counted.items():
        batch = 1
        while copies and units:
            # Any number of equal sizes is a sum of batches of 1, 2, 4, … and a rest.
            batch = min(batch, copies)
            sums |= sums << (units * batch)
            reach += units * batch
            if reach > width:
                sums &= window
            copies -= batch
            batch *= 2
    return sums


def _reached(units: Sizes, least: int, most: int) -> bool:
    """Find a subset whose sum is in a range; False if simple ways find none.

    Whatever fits is taken, in the order given; then some that were taken are exchanged for some
    that were not, one for one or two for two; then the smallest fill the rest.

    Whatever fits is taken, in the order given; then some that were taken are exchanged for some
    that were not, one for one or two for two; then the smallest make up what the others leave.
    """
    missing, taken, left = _take(units, most)
    if most - missing >= least:
        return True
    lacking = missing - (most - least), missing
    gone, kept = np.unique(taken), np.unique(left)
    return (
        _exchanged(gone, kept, *lacking)
        or _exchanged(_pairs(gone), _pairs(kept), *lacking)
        or _filled(units, least, most)
    )


def _take(units: Sizes, amount: int) -> tuple[int, Sizes, Sizes]:
    """Take whatever fits; return what is missing then, what was taken and what was left."""
    rest, taken, left = units, [units[:0]], [units[:0]]
    while len(rest):
        sums = np.cumsum(rest)
        fit = int(np.searchsorted(sums, amount, side="right"))
        if fit:
            amount -= int(sums[fit - 1])
            taken.append(rest[:fit])
        rest = rest[fit:]
        left.append(rest[rest > amount])
        rest = rest[rest <= amount]
    return amount, np.concatenate(taken), np.concatenate(left)


def _pairs(sizes: Sizes) -> Sizes:
    some = sizes[:: max(1, len(sizes) // _PAIRED)]
    first, second = np.triu_indices(len(some), 1)
    return np.unique(some[first] + some[second])


def _exchanged(gone: Sizes, kept: Sizes, least: int, most: int) -> bool:
    """Whether one of `kept` is larger than one of `gone` by `least` to `most`; both increase."""
    if not len(kept):
        return False
    found = np.searchsorted(kept, gone + least)
    inside = found < len(kept)
    return bool(np.any(kept[found[inside]] <= gone[inside] + most))


def _filled(units: Sizes, least: int, most: int) -> bool:
    """Whether some small units fill the rest that larger ones leave of the range."""
    if len(units) <= _FEWEST:
        return False
    distinct, first = np.unique(units, return_index=True)
    # So many that their sums leave no holes, and reach as far as what the others leave.
    count = max(_FEWEST, int(np.searchsorted(np.cumsum(distinct), _FAR)))
    few = np.sort(first[: min(count, _MOST)])
    half = int(units[few].sum()) // 2
    before = max(0, most - half)
    missing, *_ = _take(np.sort(np.delete(units, few))[::-1], before)
    missing += most - before
    sums = 1
    for size in units[few].tolist():
        sums |= sums << size
    inside = sums & ((1 << (missing + 1)) - 1)
    return inside.bit_length() - 1 >= missing - (most - least)
