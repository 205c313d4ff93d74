"""The section of the claims page about recomputation: verdicts follow from the experiments."""

from fractions import Fraction

from papers.claims.evidence import EvidenceFile
from papers.claims.judge import Outcome, Verdict
from papers.claims.recomputation import RECOMPUTATION, recomputation_section
from papers.claims.theory import Experiment

BY_KEY = {claim.key: claim for claim in RECOMPUTATION}


def experiment(stated: int, lower: int, best: int, name: str = "i") -> Experiment:
    return Experiment("linear-solver", name, Fraction(stated), lower, best)


def test_a_claim_holds_where_the_optimum_is_stated() -> None:
    claim = BY_KEY["linear-solver"]
    cases = claim.judge([experiment(5, 5, 5), experiment(6, 5, 5), experiment(4, 5, 5)]).cases
    assert [case.outcome for case in cases] == [Outcome.HOLDS, Outcome.FAILS, Outcome.FAILS]
    assert claim.judge([experiment(5, 4, 6)]).cases[0].outcome is Outcome.OPEN
    assert claim.judge([experiment(7, 4, 6)]).cases[0].outcome is Outcome.FAILS
    assert claim.judge([]).verdict is Verdict.UNDECIDED


def test_the_section_shows_the_worst_and_the_least_failure() -> None:
    found = experiment(5, 5, 5), experiment(11, 10, 10, "slight"), experiment(8, 4, 4, "double")
    rows = tuple(each.row(None) for each in found)
    text = recomputation_section(EvidenceFile("recomputation", "command", rows, {}))
    assert "- Rests on: 3 certificates that were not kept.\n" in text
    assert "**refuted**; holds in 1 of 3, fails in 2. Worst: double, stated 8, optimum 4" in text
    assert "least: slight, stated 11, optimum 10" in text
    for claim in RECOMPUTATION:
        assert f"### {claim.key}\n" in text
        assert claim.statement in text
