"""The command that checks the claims page: what it says, and that it finds what does not agree."""

import importlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from papers.claims.evidence import EvidenceFile, evidence_path, read_evidence
from papers.claims.recomputation import RECOMPUTATION, recomputation_section

ROOT = Path(__file__).parents[3]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_check")


@pytest.fixture
def recomputation(check: ModuleType) -> ModuleType:
    return importlib.import_module("claims_recomputation")


@pytest.fixture
def docs(recomputation: ModuleType, tmp_path: Path) -> Path:
    """Return a folder with a page about a few small instances, and its evidence."""
    whole = read_evidence(evidence_path(ROOT / "docs", "recomputation"))
    few = ("chain-0", "chain-1", "random-0", "random-1", "detour")
    rows = tuple(row for row in whole.rows if row.case in few or row.claim.endswith("printed"))
    used = {digest for row in rows for digest in row.digests}
    own = replace(whole, rows=rows, documents={each: whole.documents[each] for each in used})
    own.write(tmp_path)
    (tmp_path / "claims.md").write_text(f"# Claims\n\n{recomputation_section(own)}")
    return tmp_path


def test_what_agrees_is_said_claim_by_claim(
    check: ModuleType, recomputation: ModuleType, docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main(["recomputation", "--docs", str(docs)]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    count = len(recomputation.judges(recomputation.published(docs)))
    assert len(lines) == count + 1 > len(RECOMPUTATION) + 1
    assert lines[-1] == f"{count} claims, 0 with a disagreement"
    assert (
        "arbitrary-graph-solver: refuted; 3 certificates verified; no disagreements" in lines
        or "arbitrary-graph-solver: partly; 3 certificates verified; no disagreements" in lines
    )
    assert f"recomputation 1/{count} linear-solver: 2 cases" in said.err


def test_a_page_that_says_something_else_is_found(
    check: ModuleType, docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = docs / "claims.md"
    text = page.read_text()
    page.write_text(text.replace("**confirmed on 2 instances**", "**refuted**", 1))
    assert check.main(["recomputation", "--docs", str(docs)]) == 1
    said = capsys.readouterr().out
    assert (
        "DISAGREEMENT the page says refuted, and what follows is confirmed on 2 instances" in said
    )


def test_what_is_made_again_must_not_contradict(
    check: ModuleType,
    recomputation: ModuleType,
    docs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = read_evidence(evidence_path(docs, "recomputation"))

    def again(change: Callable[[Any], Any]) -> str:
        rows = tuple(row for row in map(change, known.rows) if row is not None)
        monkeypatch.setattr(recomputation, "evidence", lambda: replace(known, rows=rows))
        code = check.main(["recomputation", "--again", "--docs", str(docs)])
        said = capsys.readouterr().out
        assert code == int("DISAGREEMENT" in said)
        return said

    assert "linear-solver, made again: confirmed on 2 instances" in again(lambda row: row)
    said = again(lambda row: None if row.case == "chain-1" else row)
    assert "DISAGREEMENT chain-1: it was not made again" in said

    def larger(row: Any) -> Any:
        if (row.claim, row.case) != ("linear-solver", "chain-0"):
            return row
        return replace(row, figures={**row.figures, "lower": 10**6, "best": 10**6})

    said = again(larger)
    assert "DISAGREEMENT chain-0: at least 1000000 in one certificate, and" in said


def test_without_a_file_there_is_what_else_is_published(
    check: ModuleType, recomputation: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "claims.md").write_text("# Claims\n")
    assert check.known(recomputation, "recomputation", tmp_path).rows == ()
    table = importlib.import_module("claims_table")
    shutil.copytree(ROOT / "docs" / "certificates", tmp_path / "certificates")
    found = check.known(table, "offloading", tmp_path)
    assert isinstance(found, EvidenceFile)
    assert found.rows != ()
    assert {row.claim for row in found.rows} <= {*table.judges(found), table.TABLE}
    assert all(digest in found.documents for row in found.rows for digest in row.digests[:1])


def test_every_section_of_the_page_is_checked(check: ModuleType) -> None:
    for name, module in check.SECTIONS.items():
        section = importlib.import_module(module)
        known = check.known(section, name, ROOT / "docs")
        assert known.section == name
        keys = {row.claim for row in known.rows}
        assert keys <= set(section.judges(known))
        assert set(section.stated_again()) <= set(section.judges(known))
