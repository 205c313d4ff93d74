"""The challenge set: the page lists it as it is, and each problem is written as models."""

import csv
import importlib
from pathlib import Path

import pytest

from offcert.formulations.exported.cells import Cells
from offcert.instances.library import Library

ROOT = Path(__file__).parents[3]


def test_what_is_written_is_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    program = importlib.import_module("challenge_set")
    page = (ROOT / "docs" / "library.md").read_text()
    assert len(program.CHOSEN) == 20
    arguments = ["challenge_set.py", "-o", str(tmp_path), "--only", "three-partition-2"]
    monkeypatch.setattr("sys.argv", arguments)
    program.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line in page for line in lines)
    with (tmp_path / "index.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["value"], row["exact"]) for row in rows] == [("406", "True"), ("400", "True")]
    names = {path.name for path in tmp_path.iterdir()}
    stem = "three-partition-2-100-no"
    assert {f"{stem}.{form}" for form in ("mps", "opb", "mzn", "dzn")} < names


def test_records_on_the_page_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    program = importlib.import_module("challenge_set")
    page = (ROOT / "docs" / "library.md").read_text()
    library = Library()
    for name in program.CHOSEN:
        entry = library.entry(name)
        record, gaps = entry.record, len(entry.problem.trace.gaps)
        grid = program.coarse(entry)
        assert record.value is not None
        exact = Cells(grid, "bound", record.value).exact(entry.problem)
        shown = f"{grid} (exact)" if exact else str(grid)
        row = f"| `{name}` | {gaps} | {record.value} | {record.proved_bound} | {shown} |"
        assert row in page, row
