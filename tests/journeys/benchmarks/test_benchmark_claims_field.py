"""What docs/claims.md says about planners of today follows from its evidence."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from papers.claims.evidence import evidence_path, read_evidence
from papers.claims.field import FIELD, HEADING, field_section
from papers.claims.judge import Outcome

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
EVIDENCE = read_evidence(evidence_path(ROOT / "docs", "field"))


@pytest.fixture
def field(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_field")


def test_the_published_section_follows_from_the_evidence(field: ModuleType) -> None:
    sections = importlib.import_module("claims_sections")
    assert sections.section_of(PAGE, HEADING) == field_section(EVIDENCE)


def test_no_planner_is_below_what_is_proved() -> None:
    for claim in FIELD:
        rows = EVIDENCE.of(claim.key)
        assert rows
        for row in rows:
            proved = row.figures.get("lower")
            if proved is not None:
                found = [row.figures[name] for name in ("known", "step")]
                assert all(each is None or int(str(each)) >= int(str(proved)) for each in found)


def test_divisions_of_a_network_are_those_of_the_page(field: ModuleType) -> None:
    ways = [(0.05, "dp"), (0.95, "dp")]
    little, much = field.budget.divided("mlp", ways)
    cases = {row.case: row for row in EVIDENCE.of("budget-peak")}
    assert cases["mlp, 0.1 to 0.05"].figures["peak"] == little.peak
    assert cases["mlp, 0.95 to 0.9"].figures["other"] == much.peak
    # With the smallest budget the peak is the largest, and most runs again.
    assert little.peak > much.peak
    assert little.again > much.again


def test_rows_of_a_case_share_what_is_known(field: ModuleType) -> None:
    rows = [{"budget": 0.1, "again": 9, "peak": 7, "best": None}]
    rows += [{"budget": 0.2, "again": 8, "peak": 6}]
    peak, least = field.divided_rows("net", rows)
    assert (peak.case, dict(peak.figures)) == ("net, 0.2 to 0.1", {"peak": 7, "other": 6})
    # Where ours does not keep to the peak, PyTorch's own is the best known.
    assert dict(least.figures) == {"known": 9, "step": 9, "peak": 7}
    claim = next(each for each in FIELD if each.key == "budget-least")
    assert [case.outcome for case in claim.judge([least]).cases] == [Outcome.OPEN]
