"""A campaign taken up from the evidence gives the page's verdicts again."""

import importlib
from pathlib import Path

import pytest

from papers.claims.evidence_check import verdicts_on
from papers.claims.offloading import CLAIMS
from papers.claims.published import TABLE
from papers.claims.theory import THEORY

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def test_a_campaign_goes_on_where_the_page_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    claims, restoring = map(importlib.import_module, ("claims", "claims_restore"))
    restoring.restore(tmp_path, DOCS, claims.TABLE, claims.EXPERIMENTS)
    page, _ = claims.report(claims._parse(["--folder", str(tmp_path)]))
    published = (DOCS / "claims.md").read_text(encoding="utf-8")
    said, follows = verdicts_on(published), verdicts_on(page.text)
    keys = [claim.key for claim in (*CLAIMS, *THEORY)]
    assert {key: follows[key] for key in keys} == {key: said[key] for key in keys}
    # Digests of certificates that were not kept are those of the evidence.
    table, theorems = page.evidence
    known = {row.case: row.certificate for row in table.of(TABLE)}
    assert sum(each is not None for each in known.values()) > 200
    assert all(row.certificate is not None for row in theorems.rows)
    before = sorted(path.name for path in tmp_path.iterdir())
    restoring.restore(tmp_path, DOCS, claims.TABLE, "other.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
