"""What docs/claims.md says about recomputation is what comes out."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from papers.checkpoint_graphs.counterexamples import GRAPHS
from papers.claims.evidence import evidence_path, read_evidence
from papers.claims.evidence_check import check_section
from papers.claims.recomputation import HEADING, recomputation_section

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
EVIDENCE = read_evidence(evidence_path(ROOT / "docs", "recomputation"))


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_recomputation")


def test_the_published_section_follows_from_the_evidence(benchmark: ModuleType) -> None:
    section = recomputation_section(EVIDENCE)
    sections = importlib.import_module("claims_sections")
    assert sections.section_of(PAGE, HEADING) == section
    assert sections.replaced(PAGE, HEADING, section) == PAGE


def test_a_part_of_the_evidence_is_computed_again(benchmark: ModuleType) -> None:
    # The largest one takes seconds.
    made = benchmark.evidence(graphs=30, chains=20, networks=False, named=GRAPHS[:2])
    published = {(row.claim, row.case): row for row in EVIDENCE.rows}
    assert len(made.rows) == 20 * 4 + 4 + 2 * 2 + 30 * 3
    assert all(published[row.claim, row.case] == row for row in made.rows)
    assert all(EVIDENCE.documents[digest] == made.documents[digest] for digest in made.documents)


def test_verdicts_figures_and_certificates_agree(benchmark: ModuleType) -> None:
    keys = ("selection-algorithm-3", "selection-algorithm-6-as-printed", "linear-solver")
    keys += ("reforwarding-case-1",)
    judges = {key: judge for key, judge in benchmark.judges(EVIDENCE).items() if key in keys}
    own = type(EVIDENCE)(
        EVIDENCE.section,
        EVIDENCE.command,
        tuple(row for row in EVIDENCE.rows if row.claim in keys),
        EVIDENCE.documents,
    )
    found = list(check_section(own, PAGE, judges, benchmark.stated_again()))
    assert [check.claim for check in found] == sorted(keys, key=list(benchmark.judges(own)).index)
    assert [check.disagreements for check in found] == [[]] * 4
    assert [check.here for check in found] == [100, 100, 1, 0]
