"""Fits the part of their best that kernels reach in training, by `plausibility.py --fit`.

It is fitted to every second row, by the least sum of absolute logarithms of ratios, and the other
rows say how good it is; then the other way around.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import log
from statistics import median
from typing import Protocol

# Parts of the best that are tried, in hundredths. Arbitrary.
_TRIED = range(40, 101)


class Ratio(Protocol):
    """A step whose published throughput is known."""

    def ratio(self, *, sustained: Fraction) -> float:
        """Return the predicted throughput over the published one, if kernels reach a part."""


def fit(rows: Sequence[Ratio]) -> Fraction:
    """Return the part of the best with which the rows are least off."""
    tried = (Fraction(part, 100) for part in _TRIED)
    return min(tried, key=lambda s: sum(abs(log(row.ratio(sustained=s))) for row in rows))


def held_out(rows: Sequence[Ratio]) -> Iterator[str]:
    """Yield lines: fitted to one half of all rows, how far off the other half is."""
    halves = rows[::2], rows[1::2]
    for fitted, other in (halves, halves[::-1]):
        part = fit(fitted)
        off = [abs(row.ratio(sustained=part) - 1) for row in other]
        before = [abs(row.ratio(sustained=Fraction(1)) - 1) for row in other]
        yield (
            f"{float(part):.2f} by {len(fitted)} rows; the other {len(other)} are off by "
            f"{median(off):.1%} in the median, {max(off):.0%} at most, at the best rates by "
            f"{median(before):.1%}"
        )
    yield f"{float(fit(rows)):.2f} by all rows"
