"""The benchmark that runs tests with other versions: what it reads, and that its page has it."""

import importlib
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from offcert.runtime.torch_versions import NEWEST, OLDEST

ROOT = Path(__file__).parents[3]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("versions")


def test_outcomes_of_all_kinds_are_counted(versions: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_four.py").write_text(
        "import pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert 0\n"
        "def test_left(): pytest.skip('no device')\n"
        "@pytest.fixture\n"
        "def broken(): raise ValueError\n"
        "def test_broken(broken): pass\n"
    )
    row = versions.ran("here", Path(sys.executable), [str(tmp_path)])
    failed = ["test_four::test_broken", "test_four::test_wrong"]
    assert row["passed"] == 1
    assert sorted(name.rpartition(".")[2] for name in row["failed"]) == failed
    assert row["skipped"] == {"no device": 1}
    line = versions.table({"2.0/3.1/1.0": row}).splitlines()[-1]
    tests, *rest = line.split(" | ")[3:6]
    assert tests.partition(" ")[0] == "3"
    assert rest == ["`test_wrong`; `test_broken`", "1"]


def test_tests_that_do_not_run_at_all_are_told(versions: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text("import no_such_module\n")
    row = versions.ran("here", Path(sys.executable), [str(tmp_path)])
    assert row["failed"]
    assert not row["passed"]


def test_the_page_has_what_was_run() -> None:
    rows = json.loads((ROOT / "benchmarks" / "versions.json").read_text())
    series = [".".join(row["torch"].split(".")[:2]) for row in rows.values()]
    assert {OLDEST, NEWEST} <= set(series)
    pythons = {".".join(row["python"].split(".")[:2]) for row in rows.values()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = {text.rpartition(" ")[2] for text in project["classifiers"] if "Python :: 3." in text}
    assert said == pythons


def test_the_page_shows_the_records(versions: ModuleType) -> None:
    rows = json.loads((ROOT / "benchmarks" / "versions.json").read_text())
    page = versions.PAGE.read_text()
    shown = page.partition(versions.BEGIN)[2].partition(versions.END)[0]
    assert shown.strip() == versions.table(rows)
