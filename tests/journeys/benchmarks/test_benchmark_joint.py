"""The benchmark of joint plans prints its table and writes what it has measured."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from offcert.heuristics.joint.search import joint_search
from offcert.questions.schedule.problem import Problem

ROOT = Path(__file__).parents[3]


def test_a_small_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Searches end after steps, and not after seconds: what they find is the same everywhere.
    ended = {"time_limit": 3600.0, "coolings": 4, "steps": 100, "transfers": 0.0}

    def steady(problem: Problem, **options: Any) -> None:
        joint_search(problem, **(options | ended))

    monkeypatch.setattr("offcert.heuristics.joint.search.joint_search", steady)
    file = tmp_path / "joint.json"
    script = ROOT / "benchmarks" / "joint.py"
    call = [script, "resnet18", "--input", "8x3x64x64"]
    call += ["--memory", "3/4,1MiB", "--time-limit", "0.4", "--workers", "1", "-o", file]
    monkeypatch.setattr(sys, "argv", [str(each) for each in call])
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert said.count("no plan found") == 3
    rows = {(row["limit"], row["means"]): row for row in json.loads(file.read_text())}
    assert len(rows) == 6
    both, alone, moved = (rows["3/4", means] for means in ("both", "recompute", "offload"))
    assert both["makespan"] <= min(alone["makespan"], moved["makespan"])
    assert both["makespan"] >= both["compute_time"] + both["recomputed"]
    assert alone["moved"] == 0 < moved["moved"]
    assert moved["recomputed"] == 0 < alone["recomputed"]
    assert f"{both['makespan'] / both['compute_time']:.3f} ×" in said
