"""The one rule by which numbers agree, and what it asks of factors."""

from fractions import Fraction

import pytest

from papers.claims.tolerance import Agreement, agreement

CONFIRMED, TREND, NOT = Agreement


@pytest.mark.parametrize(
    ("ours", "paper", "digit", "expected"),
    [
        ("1050", "1000", None, CONFIRMED),
        ("1051", "1000", None, TREND),
        ("1051", "1000", "51", CONFIRMED),
        ("1500", "1000", None, TREND),
        ("1501", "1000", None, NOT),
        ("666", "1000", None, NOT),
        ("0", "1", "1", CONFIRMED),
        ("0", "1", "1/2", NOT),
        ("2", "0", "1/2", NOT),
        ("-100", "100", None, NOT),
    ],
)
def test_amounts(ours: str, paper: str, digit: str | None, expected: Agreement) -> None:
    exact = None if digit is None else Fraction(digit)
    assert agreement(Fraction(ours), Fraction(paper), digit=exact) is expected


@pytest.mark.parametrize(
    ("ours", "paper", "expected"),
    [
        ("103/100", "103/100", CONFIRMED),
        # Three and one per cent are close as numbers, and not as effects.
        ("101/100", "103/100", NOT),
        ("1", "103/100", NOT),
        ("42", "40", CONFIRMED),
        ("421/10", "40", TREND),
        ("60", "40", TREND),
        ("601/10", "40", NOT),
        ("3", "2", TREND),
        ("1/2", "1/2", CONFIRMED),
        ("1/2", "51/100", NOT),
    ],
)
def test_factors_agree_by_their_effect_too(ours: str, paper: str, expected: Agreement) -> None:
    assert agreement(Fraction(ours), Fraction(paper), factor=True) is expected
