"""The benchmark that certifies the library: resumes, survives crashes, stores what is better."""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from offcert.core.errors import InputError
from offcert.core.result import SolveStatus
from offcert.instances.library import Family, Library, default_library, make_entry
from offcert.instances.records import Record
from support.workers.benchmark_workers import crash_at_m5, quick, sleep

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FAMILY = "cnn-8-0"


@pytest.fixture
def benchmark_(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("certify")
    # What the stand-ins need, without what certifying does.
    monkeypatch.setattr(module, "PRELOADED", ("offcert.campaign.preload",))
    monkeypatch.setattr(module, "work", quick)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    base = default_library().family(FAMILY)
    fresh = [
        make_entry(base.problem, FAMILY, entry.label, entry.problem.platform.memory)
        for entry in base.entries
    ]
    where = tmp_path / "library"
    where.mkdir()
    Library(where).write(Family(FAMILY, base.group, base.origin, base.problem, tuple(fresh)))
    return where


def options(folder: Path, output: Path, **changes: Any) -> argparse.Namespace:
    values: dict[str, Any] = {
        "only": "*", "group": "*", "open": False, "time_limit": 5.0, "seed": 0, "jobs": 2,
        "memory_gib": 0, "again": "no", "folder": folder, "update_library": False,
        "output": output,
    }  # fmt: skip
    return argparse.Namespace(**(values | changes))


def run(module: ModuleType, chosen: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    said: list[str] = []
    return module.run(chosen, said.append), said


def test_what_is_there_is_not_computed_again(
    benchmark_: ModuleType, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "rows.json"
    rows, said = run(benchmark_, options(folder, output, only="*-m0"))
    assert [row["name"] for row in rows] == ["cnn-8-0-m0"]
    rows, said = run(benchmark_, options(folder, output))
    assert said[0] == "3 problems, 1 of them already there"
    assert len(said) == 3
    assert {row["name"] for row in rows} == {f"cnn-8-0-m{percent}" for percent in (0, 5, 10)}
    assert len(json.loads(output.read_text())["rows"]) == 3
    # Another limit or seed is another computation.
    assert run(benchmark_, options(folder, output, seed=1))[1][0].endswith(
        " 0 of them already there"
    )
    assert len(json.loads(output.read_text())["rows"]) == 6


def test_a_crash_costs_one_row(
    benchmark_: ModuleType, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_, "work", crash_at_m5)
    output = tmp_path / "rows.json"
    rows, _ = run(benchmark_, options(folder, output))
    failed = {row["name"]: row.get("failed") for row in rows}
    assert failed == {
        "cnn-8-0-m0": None,
        "cnn-8-0-m5": "the process ended with exit code 9",
        "cnn-8-0-m10": None,
    }
    table = benchmark_.library_table.markdown(rows)
    assert "| cnn-8 | 3 | 2 |" in table
    assert "- cnn-8-0-m5: failed" not in table
    assert "- cnn-8-0-m5: the process ended with exit code 9" in table
    assert run(benchmark_, options(folder, output))[1][0] == "3 problems, 3 of them already there"
    monkeypatch.setattr(benchmark_, "work", quick)
    rows, said = run(benchmark_, options(folder, output, again="failed"))
    assert said[0] == "3 problems, 2 of them already there"
    assert not any("failed" in row for row in rows)


def test_what_never_answers_is_killed(
    benchmark_: ModuleType, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_, "work", sleep)
    monkeypatch.setattr(benchmark_, "GRACE", 0.5)
    monkeypatch.setattr(benchmark_, "PATIENCE", 0)
    rows, _ = run(benchmark_, options(folder, tmp_path / "rows.json", only="*-m0"))
    assert "without an answer" in rows[0]["failed"]


def test_better_results_go_into_the_library(
    benchmark_: ModuleType, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "rows.json"
    rows, said = run(benchmark_, options(folder, output, only="*-m0"))
    assert all(entry.record == Record() for entry in Library(folder).entries())
    chosen = options(folder, output, only="*-m0", again="all", update_library=True)
    rows, said = run(benchmark_, chosen)
    assert "; record now " in said[1]
    record = Library(folder).record("cnn-8-0-m0")
    assert record.value == rows[0]["objective"]
    assert record.status is SolveStatus.OPTIMAL
    assert run(benchmark_, chosen)[1][1].endswith("; no better than the record")
    _, said = run(benchmark_, options(folder, output, only="*-m0", open=True, again="all"))
    assert said == ["0 problems, 0 of them already there"]


def test_another_programs_file_is_not_overwritten(
    benchmark_: ModuleType, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "rows.json"
    output.write_text('{"precious": 1}')
    with pytest.raises(ValueError, match="choose another output"):
        run(benchmark_, options(folder, output))
    assert output.read_text() == '{"precious": 1}'


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_computed(
    benchmark_: ModuleType, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever computed first would wait for a worker that never answers.
    monkeypatch.setattr(benchmark_, "work", sleep)
    with pytest.raises(InputError, match="is no folder"):
        run(benchmark_, options(folder, Path("/dev/null/rows.json")))


def test_the_script_itself(tmp_path: Path) -> None:
    output = tmp_path / "rows.json"
    command = [sys.executable, str(BENCHMARKS / "certify.py"), "--only", "two-partition-8-no-*"]
    command += ["--time-limit", "2", "--jobs", "2", "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(output.read_text())["rows"]
    assert {row["name"] for row in rows} == {
        "two-partition-8-no-atomic",
        "two-partition-8-no-interruptible",
    }
    for row in rows:
        assert row["lower_bound"] > 2 * 1733162
        assert row["bounds"]["prop3"] <= row["lower_bound"] <= row["objective"]
    assert (tmp_path / "rows.md").read_text() == done.stdout
    assert "| two-partition-atomic | 1 |" in done.stdout
