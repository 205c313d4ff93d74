"""What docs/claims.md says about recomputation is what comes out."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from offcert.report.claims.recomputation import recomputation_section

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_recomputation")


def test_the_published_section_is_computed_again(benchmark: ModuleType) -> None:
    section = recomputation_section(list(benchmark.experiments()))
    assert benchmark.section_of(PAGE) == "\n" + section
    assert benchmark.without_section(PAGE) + "\n" + section == PAGE


def test_a_page_without_the_section_stays_as_it_is(benchmark: ModuleType) -> None:
    assert benchmark.section_of("# Claims\n\nText\n") == ""
    assert benchmark.without_section("# Claims\n\nText\n\n") == "# Claims\n\nText\n"
