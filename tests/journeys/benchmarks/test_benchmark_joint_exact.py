"""The benchmark of small joint problems closes and verifies them, and says what it did."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_a_few_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "exact.json"
    script = ROOT / "benchmarks" / "joint_exact.py"
    call = [script, "--computations", "4-6", "--problems", "6", "--time-limit", "20", "-o", file]
    call += ["--ask", "time", "memory by a deadline, held"]
    monkeypatch.setattr(sys, "argv", [str(each) for each in call])
    runpy.run_path(str(script), run_name="__main__")
    table = capsys.readouterr().out.splitlines()[2:]
    assert [line.split(" | ")[1:3] for line in table] == [
        ["time", "6 of 6"],
        ["memory by a deadline, held", "6 of 6"],
    ]
    rows = json.loads(file.read_text())
    assert {row["problem"].split()[0] for row in rows} == {"4", "5", "6"}
    assert all(row["status"] in ("OPTIMAL", "INFEASIBLE") for row in rows)
    assert all(row["objective"] == row["lower_bound"] for row in rows if row["objective"])
