"""Grading the hard core: by the limit that is kept with a margin, resumable, records verified."""

import argparse
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from offcert.core.result import SolveStatus
from offcert.instances.library import Family, Library, make_entry
from offcert.questions.schedule.files import problem_digest
from offcert_lab.hunts.phase import CoreProblems
from support.workers.benchmark_workers import quick, sleep

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
NAME = "core-narrow-4-0"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.import_module("grade_core")
    monkeypatch.setattr(found.runs, "PRELOADED", ("support.workers.benchmark_workers", "certify"))
    monkeypatch.setattr(found.runs, "work", quick)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    problem = CoreProblems(stages=4, shape="narrow", points=4).problem(0)
    where = tmp_path / "library"
    where.mkdir()
    entry = make_entry(problem, NAME, "", problem.platform.memory)
    Library(where).write(Family(NAME, "core-ungraded", "found", problem, (entry,)))
    return where


def run(module: ModuleType, folder: Path, output: Path) -> tuple[dict[str, int], list[str]]:
    said: list[str] = []
    options = argparse.Namespace(only="*", margin=0.8, slowdown=1, folder=folder, output=output)
    return module.run(options, said.append), said


def row(limit: int, seconds: float, status: str = "OPTIMAL", bound: int = 100) -> dict[str, Any]:
    return {
        "time_limit": limit, "last_news": seconds, "status": status, "version": "1",
        "objective": 100, "lower_bound": bound,
    }  # fmt: skip


def test_a_grade_is_the_first_limit_that_is_kept_with_a_margin(module: ModuleType) -> None:
    late = row(1, 0.9)
    assert module.grade([row(1, 0.8)], 0.8)[0] == "core-1s"
    assert module.grade([late], 0.8)[0] == "core-open"
    assert module.grade([late], 0.95)[0] == "core-1s"
    assert module.grade([late, row(10, 2.0)], 0.8)[0] == "core-10s"
    unsolved = row(10, 10.0, "FEASIBLE", 90)
    group, why = module.grade([late, unsolved, row(60, 31.0)], 0.8)
    assert group == "core-60s"
    assert why == "optimal in 31.0 s of at most 60 s, one thread, offcert 1"
    group, why = module.grade([late, unsolved, row(60, 60.0, "FEASIBLE", 99)], 0.8)
    assert (group, why.split(",")[0]) == ("core-open", "gap 1 % after 60 s")
    group, why = module.grade([row(4, 3.0)], 0.8, 4)
    assert group == "core-1s"
    assert why.startswith("optimal in 3.0 s of at most 4 s, 4 times as long for all")
    failed = {"time_limit": 60, "failed": "killed", "version": "1"}
    assert module.grade([late, unsolved, failed], 0.8) == (
        "core-open",
        "killed after 60 s, one thread, offcert 1",
    )


def test_what_does_not_close_is_open_and_its_record_is_kept(
    module: ModuleType, folder: Path, tmp_path: Path
) -> None:
    digest = problem_digest(Library(folder).load(NAME))
    counts, said = run(module, folder, tmp_path / "rows.json")
    assert counts == {"core-1s": 0, "core-10s": 0, "core-60s": 0, "core-open": 1}
    library = Library(folder)
    family = library.family(NAME)
    assert family.group == "core-open"
    assert family.origin.startswith("found; graded: gap ")
    assert family.entries[0].digest == digest
    assert library.record(NAME).status is SolveStatus.FEASIBLE
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [item["time_limit"] for item in rows] == [1, 10, 60]
    assert said == [f"1/1 {NAME}: core-open, {family.origin.partition('graded: ')[2]}"]


def test_it_goes_on_where_it_stopped_and_moves_a_family(
    module: ModuleType, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "rows.json"
    run(module, folder, output)
    before = (folder / f"{NAME}.json").read_text()
    # Whoever measured again would wait for a worker that never answers.
    monkeypatch.setattr(module.runs, "work", sleep)
    monkeypatch.setattr(module.runs, "GRACE", 0.5)
    monkeypatch.setattr(module.runs, "PATIENCE", 0)
    run(module, folder, output)
    assert (folder / f"{NAME}.json").read_text() == before
    document = json.loads(output.read_text())
    for item in document["rows"]:
        if item["time_limit"] == 10:
            item |= {"status": "OPTIMAL", "last_news": 7.0}
    output.write_text(json.dumps(document))
    counts, _ = run(module, folder, output)
    assert counts["core-10s"] == 1
    family = Library(folder).family(NAME)
    assert family.group == "core-10s"
    assert family.origin.count("graded") == 1
    assert "optimal in 7.0 s of at most 10 s" in family.origin
