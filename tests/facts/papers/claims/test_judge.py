"""Verdicts from cases."""

from fractions import Fraction

import pytest

from papers.claims.judge import ALWAYS, OFTEN, USUALLY, Case, Outcome, Share, Verdict, judge


def cases(holds: int, fails: int, open_: int = 0) -> list[Case]:
    made = [Case(f"h{i}", Outcome.HOLDS, Fraction(i, 10)) for i in range(holds)]
    made += [Case(f"f{i}", Outcome.FAILS, Fraction(10 + i, 10)) for i in range(fails)]
    return made + [Case(f"o{i}", Outcome.OPEN, Fraction(9)) for i in range(open_)]


@pytest.mark.parametrize(
    ("holds", "fails", "open_", "share", "verdict"),
    [
        (5, 0, 0, ALWAYS, Verdict.CONFIRMED),
        (99, 1, 0, ALWAYS, Verdict.REFUTED),
        (99, 1, 7, ALWAYS, Verdict.REFUTED),
        (99, 0, 1, ALWAYS, Verdict.UNDECIDED),
        (0, 0, 0, ALWAYS, Verdict.UNDECIDED),
        (9, 1, 0, USUALLY, Verdict.CONFIRMED),
        (8, 2, 0, USUALLY, Verdict.PARTLY),
        (5, 5, 0, USUALLY, Verdict.PARTLY),
        (4, 6, 0, USUALLY, Verdict.REFUTED),
        (8, 1, 1, USUALLY, Verdict.UNDECIDED),
        (7, 2, 1, USUALLY, Verdict.PARTLY),
        (5, 5, 0, OFTEN, Verdict.CONFIRMED),
        (1, 3, 0, OFTEN, Verdict.PARTLY),
        (0, 1, 0, OFTEN, Verdict.REFUTED),
    ],
)
def test_a_verdict_is_what_no_open_case_can_change(
    holds: int, fails: int, open_: int, share: Share, verdict: Verdict
) -> None:
    assert judge(cases(holds, fails, open_), share).verdict is verdict


def test_the_worst_case_is_the_worst_failure_and_else_the_closest() -> None:
    failed = judge(cases(3, 2, 1), USUALLY)
    assert failed.worst is not None
    assert failed.worst.label == "f1"
    assert [case.label for case in failed.failures] == ["f1", "f0"]
    held = judge(cases(3, 0), USUALLY)
    assert held.worst is not None
    assert held.worst.label == "h2"
    assert judge([Case("x", Outcome.HOLDS)], ALWAYS).worst is None


def test_counts_say_what_there_is() -> None:
    assert judge(cases(3, 2, 1), ALWAYS).counts() == "holds in 3 of 6, fails in 2, open in 1"
    assert judge(cases(3, 0), ALWAYS).counts() == "holds in 3 of 3"
    assert judge([], ALWAYS).counts() == "no cell of the table speaks of it"


def test_shares_in_words() -> None:
    assert str(ALWAYS) == "in every case"
    assert str(USUALLY) == "in at least 90 % of the cases (below 50 % it is refuted)"
