"""What docs/claims.md says about both together follows from the figures that are published."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from offcert.core.documents import read_json
from offcert.core.errors import InputError
from offcert.formulations.rematerialisation.least_memory import single_run_bound
from offcert.questions.schedule.problem import Minimise, Recompute
from offcert.runtime.hardware import hardware
from offcert.runtime.profiling.profile import profile
from papers.claims.combined import (
    COMBINED,
    HEADING,
    MEANS,
    CombinedRow,
    combined_section,
    comparisons_of,
    rows_from_json,
    rows_to_json,
)
from papers.claims.evidence import evidence_path, read_evidence
from papers.claims.evidence_check import check_section
from papers.claims.judge import Outcome, Verdict
from support.problems.joint_certificates import least_memory_certificate

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
ROWS = rows_from_json(read_json(ROOT / "docs" / "claims-combined.json"))
EVIDENCE = read_evidence(evidence_path(ROOT / "docs", "combined"))
BY_KEY = {claim.key: claim for claim in COMBINED}


@pytest.fixture
def sections(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_sections")


def three(network: str, *figures: tuple[int, int], peak: int = 1200) -> list[CombinedRow]:
    """Return rows with found and proved bytes, for offloading, recomputation and both."""
    return [
        CombinedRow(network, means, peak, *pair, 3.0)
        for means, pair in zip(MEANS, figures, strict=True)
    ]


def outcome(key: str, rows: list[CombinedRow]) -> tuple[Outcome, str]:
    (case,) = BY_KEY[key].judge(comparisons_of(rows)).cases
    return case.outcome, case.text


def test_the_published_section_is_written_again(sections: ModuleType) -> None:
    section = combined_section(ROWS, EVIDENCE)
    assert sections.section_of(PAGE, HEADING) == section
    assert sections.replaced(PAGE, HEADING, section) == PAGE
    for claim in COMBINED:
        assert f"### {claim.key}\n" in section


def test_published_figures_are_possible() -> None:
    for each in comparisons_of(ROWS):
        rows = each.rows
        assert len({row.peak for row in rows.values()}) == 1
        for row in rows.values():
            assert row.bound <= row.found <= row.peak
            # Whatever one of them can do both can.
            assert rows["both"].bound <= row.found


@pytest.mark.parametrize("network", ["vgg19", "resnet18"])
def test_a_claim_fails_where_a_single_run_takes_too_much(network: str) -> None:
    row = next(
        row for row in ROWS if row.means == "both" and row.network.startswith(f"{network} 32x3x224")
    )
    problem = profile(
        network, "32x3x224x224", clock="modules", hardware=hardware("v100-pcie", peak=True)
    )
    problem = replace(problem, recompute=Recompute.ANY, minimise=Minimise.MEMORY)
    assert row.peak == problem.trace.peak_memory
    assert single_run_bound(problem).value <= row.bound
    assert 4 * single_run_bound(problem).value > row.peak


@pytest.mark.parametrize(
    ("key", "both", "expected"),
    [
        ("combined-least", (300, 100), Outcome.HOLDS),
        ("combined-least", (301, 300), Outcome.OPEN),
        ("combined-least", (400, 301), Outcome.FAILS),
        ("combined-most", (250, 200), Outcome.HOLDS),
        ("combined-most", (200, 199), Outcome.OPEN),
        ("combined-most", (199, 100), Outcome.FAILS),
        ("combined-better", (199, 100), Outcome.HOLDS),
        ("combined-better", (200, 100), Outcome.OPEN),
        ("combined-better", (400, 400), Outcome.FAILS),
    ],
)
def test_cases_are_decided_by_certified_ranges(
    key: str, both: tuple[int, int], expected: Outcome
) -> None:
    rows = three("resnet18 8x3", (500, 300), (400, 200), both)
    assert outcome(key, rows)[0] is expected
    others = three("vgg19 8x3", (500, 300), (400, 200), both)
    if key == "combined-least":
        assert outcome("combined-least-others", others)[0] is expected
        assert BY_KEY[key].judge(comparisons_of(others)).verdict is Verdict.UNDECIDED


def test_the_evidence_holds_the_published_figures(sections: ModuleType) -> None:
    benchmark = importlib.import_module("claims_combined")
    assert {benchmark.row_of(row) for row in EVIDENCE.rows} == set(ROWS)
    judges, again = benchmark.judges(EVIDENCE), benchmark.stated_again()
    # Some certificates take seconds to verify, all of them `make claims`.
    judged = {key: judges[key] for key in ("combined-least-others",)}
    own = replace(EVIDENCE, rows=tuple(EVIDENCE.of("combined-least-others")))
    (check,) = check_section(own, PAGE, judged, again)
    assert check.disagreements == []
    assert check.here + check.elsewhere + check.lost == 2


def test_certificates_are_found_by_what_they_show(tmp_path: Path, sections: ModuleType) -> None:
    benchmark = importlib.import_module("claims_combined")
    document = least_memory_certificate(45).to_json()
    (tmp_path / "certificate.json").write_text(json.dumps(document))
    (key,) = benchmark.documents_in(tmp_path)
    assert key[2:] == (document["objective"], document["lower_bound"])
    row = CombinedRow(key[0], key[1], 99, *key[2:], 3.0)
    made = benchmark.combined_evidence([row], benchmark.documents_in(tmp_path), {})
    assert {each.certificate for each in made.rows} <= {document["digest"]}
    assert benchmark.merged([row], [replace(row, found=1)]) == [replace(row, found=1)]


def test_factors_are_rounded_to_the_safe_side() -> None:
    rows = three("resnet18 8x3", (1000, 900), (1000, 900), (300, 299), peak=1000)
    assert outcome("combined-least", rows) == (Outcome.FAILS, "3.33 to 3.35 times less")
    exact = three("resnet18 8x3", (1000, 900), (1000, 900), (250, 250), peak=1000)
    assert outcome("combined-least", exact) == (Outcome.HOLDS, "4.00 times less")
    assert comparisons_of(exact)[0].factors == (Fraction(4), Fraction(4))


def test_rows_are_read_as_they_are_written(
    tmp_path: Path, sections: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = importlib.import_module("claims_combined")
    rows = [
        {"network": "vgg19 1x3", "means": means, "peak": 9, "objective": 5, "lower_bound": 4}
        | {"time_limit": 3.0, "gap": 0.2}
        for means in MEANS
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "claims.md").write_text("# Claims\n\nText\n\n## Last\n\nMore\n")
    benchmark.main([str(tmp_path / "rows.json"), "--docs", str(tmp_path)])
    written = rows_from_json(read_json(tmp_path / "claims-combined.json"))
    assert written == [CombinedRow("vgg19 1x3", means, 9, 5, 4, 3.0) for means in MEANS]
    assert rows_from_json(rows_to_json(written)) == written
    page = (tmp_path / "claims.md").read_text()
    evidence = read_evidence(evidence_path(tmp_path, "combined"))
    assert [row.lost for row in evidence.of("combined-better")] == [True] * 3
    assert page == f"# Claims\n\nText\n\n## Last\n\nMore\n\n{combined_section(written, evidence)}"
    assert sections.replaced(page, "## Last", "## Last\n\nNew\n").count("New\n\n## Claims") == 1
    assert sections.section_of("# Claims\n", HEADING) == ""
    with pytest.raises(InputError, match="bound"):
        rows_from_json(rows_to_json([]) | {"rows": [{"peak": 1, "found": 1}]})
