"""Figures of the papers beside ours: how they agree, and that the worst of a claim decides."""

from fractions import Fraction

import pytest

from papers.claims.evidence import EvidenceFile
from papers.claims.figures import FIGURES, FigureClaim, agreement_of, figure_row, figures_section
from papers.claims.modnn_claims import Agreement
from papers.claims.theory import Experiment, TheoryClaim

CLAIM = FigureClaim("own", "§1", "It takes so much.", "What it takes.", "Why it differs.")
STATED = TheoryClaim("told", "§2", "None is shorter.", "A chain.", attained=False)


@pytest.mark.parametrize(
    ("paper", "here", "unit", "expected"),
    [
        (1000, 1050, "MiB", Agreement.CONFIRMED),
        (1000, 1051, "MiB", Agreement.IN_TREND),
        (1000, 1500, "MiB", Agreement.IN_TREND),
        (1000, 1501, "MiB", Agreement.NOT),
        (1000, 666, "MiB", Agreement.NOT),
        # Printed as whole numbers, and with a digit behind the point.
        (1, 0, "MiB", Agreement.CONFIRMED),
        (0, 2, "%", Agreement.NOT),
        ("28/10", "29/10", "%", Agreement.CONFIRMED),
        ("28/10", "3", "%", Agreement.IN_TREND),
        (4, 4, "×", Agreement.CONFIRMED),
        (4, 2, "×", Agreement.IN_TREND),
        (4, "19/10", "×", Agreement.NOT),
        ("11/10", 1, "×", Agreement.NOT),
    ],
)
def test_figures_agree_as_the_page_says(
    paper: int | str, here: int | str, unit: str, expected: Agreement
) -> None:
    assert agreement_of(figure_row("own", "case", paper, Fraction(here), unit)) is expected


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
