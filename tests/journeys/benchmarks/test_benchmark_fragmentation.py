"""The benchmark of the price of fragmentation prints its table and writes what it has measured."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_a_problem_of_each_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fragmentation.json"
    script = ROOT / "benchmarks" / "fragmentation.py"
    call = [script, "--problems", "1", "--seed", "4", "--time-limit", "30", "-o", file]
    monkeypatch.setattr(sys, "argv", [str(each) for each in call])
    names = runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    rows = json.loads(file.read_text())["rows"]
    assert [row["family"] for row in rows] == ["any", "fragmented"]
    assert all(row["closed"] and row["placed"] >= row["without"] for row in rows)
    assert "| any | 1 | 1 |" in said
    # What the second family is about: four bytes are enough at any time, and no addresses exist.
    example = [(2, 0, 1), (2, 0, 2), (1, 1, 4), (1, 1, 3), (1, 2, 4), (2, 3, 5), (2, 4, 5)]
    assert (names["fits"](example, 4), names["fits"](example, 5)) == (False, True)
