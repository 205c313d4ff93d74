"""The benchmark of small problems and boxes closes and verifies them, and says so."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_a_few_problems_and_boxes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ROOT / "benchmarks" / "small_problems.py"
    call = [script, "--problems", "6", "--boxes", "3", "--stages", "4", "--time-limit", "20"]
    monkeypatch.setattr(sys, "argv", [str(each) for each in call])
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr()
    table = printed.out.splitlines()[2:]
    assert [line.split(" | ")[:2] for line in table] == [
        ["| problems", "6 of 6"],
        ["| boxes", "3 of 3"],
    ]
    assert printed.err == ""
