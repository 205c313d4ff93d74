"""Theorems against certified ranges of optima."""

from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from papers.claims.judge import Verdict
from papers.claims.theory import THEORY, Experiment, experiments_from_json, experiments_to_json

CLAIMS = {claim.key: claim for claim in THEORY}


def verdict(key: str, *ranges: tuple[int, int, int]) -> Verdict:
    made = [Experiment(key, f"i{i}", Fraction(s), lo, up) for i, (s, lo, up) in enumerate(ranges)]
    return CLAIMS[key].judge(made).verdict


@pytest.mark.parametrize("key", ["theorem-1-yes", "theorem-1-as-printed", "theorem-2"])
def test_what_shall_be_attained(key: str) -> None:
    assert verdict(key, (400, 400, 400), (400, 300, 390)) is Verdict.CONFIRMED
    assert verdict(key, (400, 401, 600), (400, 400, 400)) is Verdict.REFUTED
    assert verdict(key, (400, 399, 401)) is Verdict.UNDECIDED


@pytest.mark.parametrize("key", ["lemma-3", "algorithm-1", "theorem-1-no", "theorem-3-no"])
def test_what_shall_not_be_undercut(key: str) -> None:
    assert verdict(key, (251, 251, 260)) is Verdict.CONFIRMED
    assert verdict(key, (251, 251, 260), (251, 219, 219)) is Verdict.REFUTED
    assert verdict(key, (251, 250, 251)) is Verdict.UNDECIDED


def test_experiments_are_those_of_the_claim_and_the_worst_is_named() -> None:
    made = [
        Experiment("lemma-3", "near", Fraction(19), 18, 18),
        Experiment("lemma-3", "far", Fraction(19), 17, 17),
        Experiment("algorithm-1", "other", Fraction(19), 1, 1),
    ]
    finding = CLAIMS["lemma-3"].judge(made)
    assert finding.counts() == "holds in 0 of 2, fails in 2"
    assert finding.worst is not None
    assert finding.worst.label == "far"
    assert finding.worst.text == "stated 19, optimum 17 (1.118 ×)"


def test_what_gets_stuck_fails_by_no_factor() -> None:
    stuck = Experiment("proposition-1", "stuck", None, 17, 17)
    long = Experiment("proposition-1", "long", Fraction(18), 17, 17)
    finding = CLAIMS["proposition-1"].judge([stuck, long])
    assert finding.verdict is Verdict.REFUTED
    assert [case.text for case in finding.failures] == [
        "stated 18, optimum 17 (1.059 ×)",
        "gets stuck, optimum 17",
    ]
    assert Experiment.of(stuck.row(None)) == stuck


def test_files_of_experiments() -> None:
    made = [
        Experiment("lemma-3", "a", Fraction(502, 3), 3, 4, "theory/a.json"),
        Experiment("theorem-2", "b", None, 7, 7),
    ]
    document = experiments_to_json(made)
    assert experiments_from_json(document) == made
    document["experiments"][1]["lower"] = -1
    with pytest.raises(InputError, match=r"experiments\[1\]\.lower must be at least 0"):
        experiments_from_json(document)
    with pytest.raises(InputError, match='format must be "offcert-theory"'):
        experiments_from_json({"format": "x", "version": 1, "experiments": []})
