"""The one rule by which a number of ours agrees with a number that a paper prints."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

# Factors within which numbers are close, and near; and those within which their effects are. A
# tolerance of measurements, arbitrary.
CLOSE, NEAR = Fraction(21, 20), Fraction(3, 2)

RULE = """\
**Numbers.** One rule holds for every number that a paper prints. Ours *confirms* it if it is within
5 % of it, or is what the paper's last digit stands for (of a difference of two printed numbers: a
unit of that digit); it is *in trend* within a factor of 1.5; otherwise the number is *not
reproduced*. Of a factor ("1.26 times as fast", "3 % slower") the effect has to agree, too: the
logarithms of both factors within a factor of 1.5, or of 2 for a trend, so that 3 % and 8 % of
slow-down are not near each other. A claim with several numbers is what the worst of them is."""


class Agreement(StrEnum):
    """Of a number of ours with the paper's."""

    CONFIRMED = "confirmed"
    IN_TREND = "in trend"
    NOT = "not reproduced"


def agreement(
    ours: Fraction, paper: Fraction, *, digit: Fraction | None = None, factor: bool = False
) -> Agreement:
    """Return how two numbers agree.

    Parameters
    ----------
    ours, paper : Fraction
        The numbers.
    digit : Fraction, optional
        How far from what is printed the number that was meant may be.
    factor : bool
        Whether they are factors; a slow-down by 3 % is the factor 1.03.
    """
    if ours == paper:
        return Agreement.CONFIRMED
    low, high = sorted((ours, paper))
    if factor and low <= 1:
        return Agreement.NOT
    close = high <= CLOSE * low or (digit is not None and high - low <= digit)
    # Powers instead of logarithms, so that it is exact.
    if close and (not factor or high**2 <= low**3):
        return Agreement.CONFIRMED
    near = low > 0 and high <= NEAR * low and (not factor or high <= low**2)
    return Agreement.IN_TREND if near else Agreement.NOT
