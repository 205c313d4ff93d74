"""What docs/claims.md says about equal layers follows from its evidence, and its proofs hold."""

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from offcert.core.errors import InputError
from offcert.proofs.certificate import certificate_from_json
from offcert.proofs.joint_document import JointCases, read
from papers.claims.evidence import evidence_path, read_evidence
from papers.claims.evidence_check import check_section
from papers.claims.judge import Outcome
from papers.claims.layers import CLAIMS, HEADING, KNOWN, RULES, case_of, layers_section
from papers.layers.bound import Choice, Facts, cut_of, members_of
from papers.layers.rules import Alike, faults
from papers.layers.stretches import Layers

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
EVIDENCE = read_evidence(evidence_path(ROOT / "docs", "layers"))
CASE = "vit-h-14 at 1GiB"


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_layers")


def test_the_published_section_follows_from_the_evidence(layers: ModuleType) -> None:
    sections = importlib.import_module("claims_sections")
    assert sections.section_of(PAGE, HEADING) == layers_section(EVIDENCE)


def test_all_rules_are_held_against_the_same_best_plan() -> None:
    for known in EVIDENCE.of(KNOWN.key):
        rows = [row for claim in CLAIMS for row in EVIDENCE.of(claim.key) if row.case == known.case]
        assert len(rows) == len(CLAIMS)
        assert {row.figures["known"] for row in rows} == {known.figures["best"]}
        assert min(int(str(row.figures["best"])) for row in rows) == known.figures["best"]


def test_what_is_lost_decides_a_case() -> None:
    (row,) = (row for row in EVIDENCE.of(RULES[0].key) if row.case == CASE)

    def outcome(**figures: int) -> Outcome:
        return case_of(replace(row, figures={**row.figures, **figures})).outcome

    assert outcome(lower=1000, known=1000, within=1000, best=1010) is Outcome.HOLDS
    assert outcome(lower=1000, known=1000, within=1000, best=1011) is Outcome.OPEN
    assert outcome(lower=1000, known=1000, within=1010, best=1011) is Outcome.FAILS
    assert outcome(lower=1000, known=1001, within=1010, best=1011) is Outcome.OPEN


def test_a_case_is_verified_again_and_what_is_forged_is_seen(layers: ModuleType) -> None:
    key = RULES[0].key
    (row,) = (row for row in EVIDENCE.of(key) if row.case == CASE)
    judges = {key: lambda rows: None}
    again = layers.stated_again()
    own = replace(EVIDENCE, rows=(row,))
    (check,) = check_section(own, PAGE, judges, again)
    assert check.disagreements == []
    more = {**row.figures, "within": int(str(row.figures["within"])) + 1}
    (check,) = check_section(replace(own, rows=(replace(row, figures=more),)), PAGE, judges, again)
    assert len(check.disagreements) == 1


def test_a_tree_must_have_all_cases_and_an_execution_must_keep_to_the_rule() -> None:
    (row,) = (row for row in EVIDENCE.of(RULES[0].key) if row.case == CASE)
    certificate = certificate_from_json(EVIDENCE.documents[str(row.certificate)])
    problem, execution = certificate.problem, certificate.result.execution
    assert execution is not None
    choices = Alike(Layers(problem)).choices()
    assert faults(problem, choices, execution) == ""
    again = {each for each in execution.runs if execution.runs.count(each) > 1}
    # As if the first layer had to do otherwise than all others.
    number = next(n for n, choice in enumerate(choices) if again & choice.options[1])
    one, *others = sorted(choices[number].options[1])
    choices_of_others = [*choices]
    choices_of_others[number] = Choice((frozenset({one}), frozenset(others)))
    assert "has no option" in faults(problem, choices_of_others, execution)
    facts = Facts(problem, cut_of(problem, members_of(choices)), choices)
    cases = read(str(row.figures["proof"]))
    assert len(cases.nodes) > 3
    with pytest.raises(InputError, match="ends before all cases"):
        facts.least(JointCases(cases.multipliers, cases.nodes[:-1]))
    with pytest.raises(InputError, match="beyond its cases"):
        facts.least(JointCases(cases.multipliers, (*cases.nodes, cases.nodes[-1])))
    # The weakest leaf alone, for all executions, is weaker than the tree.
    root = min(facts.weigh(each).bound({}) for each in cases.multipliers)
    assert root <= facts.least(cases)
