"""Figures of the papers beside ours: how they agree, and that the worst of a claim decides."""

from fractions import Fraction

import pytest

from papers.claims.evidence import EvidenceFile
from papers.claims.figures import FIGURES, FigureClaim, agreement_of, figure_row, figures_section
from papers.claims.theory import Experiment, TheoryClaim
from papers.claims.tolerance import Agreement

CLAIM = FigureClaim("own", "§1", "It takes so much.", "What it takes.", "Why it differs.")
STATED = TheoryClaim("told", "§2", "None is shorter.", "A chain.", attained=False)


@pytest.mark.parametrize(
    ("paper", "here", "unit", "expected"),
    [
        # Printed as whole numbers, and with a digit behind the point.
        (2, "19/10", "GiB", Agreement.CONFIRMED),
        (2, "13/10", "GiB", Agreement.NOT),
        ("28/10", "285/100", "%", Agreement.CONFIRMED),
        ("28/10", "3", "%", Agreement.IN_TREND),
        ("3", "28/10", "×", Agreement.IN_TREND),
        ("11/10", "101/100", "×", Agreement.NOT),
    ],
)
def test_figures_are_as_exact_as_their_last_digit(
    paper: int | str, here: int | str, unit: str, expected: Agreement
) -> None:
    assert agreement_of(figure_row("own", "case", paper, Fraction(here), unit)) is expected


def test_a_difference_of_printed_numbers_is_exact_to_a_unit() -> None:
    row = figure_row("own", "case", 1, 0, "MiB", digit=Fraction(1))
    assert agreement_of(row) is Agreement.CONFIRMED


def test_the_worst_figure_decides_and_other_readings_do_not() -> None:
    rows = [figure_row("own", "a", 100, 100, "%"), figure_row("own", "b", 100, 120, "%")]
    assert CLAIM.verdict(rows[:1]) is Agreement.CONFIRMED
    assert CLAIM.verdict(rows) is Agreement.IN_TREND
    other = figure_row("own", "a", 100, 900, "%", "another way")
    assert CLAIM.verdict([*rows, other]) is Agreement.IN_TREND
    assert CLAIM.verdict([other]) is Agreement.NOT


def test_a_section_shows_figures_readings_and_what_is_certified() -> None:
    rows = (
        figure_row("own", "a", 1234, Fraction(12341, 10), "MiB"),
        figure_row("own", "b", 2, Fraction(2), "×"),
        figure_row("own", "a", 1234, 3, "MiB", "another way"),
        Experiment("told", "chain", Fraction(9), 7, 8).row("ab"),
    )
    evidence = EvidenceFile("own", "command", rows, {})
    text = figures_section(evidence, "## Own", "Introduction.", [CLAIM], [STATED])
    assert text.startswith("## Own\n\nIntroduction.\n\n| claim | place | verdict |\n")
    assert "| [It takes so much.](#own) | §1 | confirmed |\n" in text
    assert "- **confirmed**; a: paper 1,234 MiB, here 1,234.1 MiB; b: paper 2.00 ×" in text
    assert "- Another reading, another way: a 3 MiB.\n- Why it differs.\n" in text
    assert "- Rests on: 3 figures that `make claims` computes again.\n" in text
    assert (
        "- **refuted**; holds in 0 of 1, fails in 1: chain, stated 9, optimum from 7 to 8" in text
    )
    assert "- Rests on: 1 certificate by digest, made again by `make claims-again`.\n" in text


def test_claims_have_names_of_their_own() -> None:
    assert len({claim.key for claim in FIGURES}) == len(FIGURES) > 5
