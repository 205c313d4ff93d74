"""The benchmark of small joint problems closes and verifies them, and says what it did."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_a_few_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "exact.json"
    script = ROOT / "benchmarks" / "joint_exact.py"
    call = [script, "--computations", "4-6", "--problems", "6", "--time-limit", "20", "-o", file]
    monkeypatch.setattr(sys, "argv", [str(each) for each in call])
    runpy.run_path(str(script), run_name="__main__")
    assert "6 of 6 closed and verified" in capsys.readouterr().out
    rows = json.loads(file.read_text())
    assert {row["problem"].split()[0] for row in rows} == {"4", "5", "6"}
    assert all(row["status"] in ("OPTIMAL", "INFEASIBLE") for row in rows)
    assert all(row["objective"] == row["lower_bound"] for row in rows if row["objective"])
