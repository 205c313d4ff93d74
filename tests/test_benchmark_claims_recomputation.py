"""What docs/claims.md says about recomputation is what comes out."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from offcert.report.claims.recomputation import HEADING, recomputation_section

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_recomputation")


def test_the_published_section_is_computed_again(benchmark: ModuleType) -> None:
    section = recomputation_section(list(benchmark.experiments()))
    sections = importlib.import_module("claims_sections")
    assert sections.section_of(PAGE, HEADING) == section
    assert sections.replaced(PAGE, HEADING, section) == PAGE
