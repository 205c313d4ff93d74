"""The benchmark of all exact models: what it prints is what it wrote."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "models.py"


def test_what_was_written_is_printed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "models.json"
    patterns = "three-partition-2-100-yes,cnn-12-3-m10"
    call = [SCRIPT, "--only", patterns, "--models", "pivot,stage-milp", "-o", file]
    monkeypatch.setattr(sys, "argv", list(map(str, call)))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    table = printed.split("\n\n")[1].splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == [
        "| 1 of `three-partition-2-100-yes`",
        "| 1 of `cnn-12-3-m10`",
    ]
    assert all("closed" not in line and " s |" in line for line in table[2:])
    again = [SCRIPT, "--only", patterns, "--again", file]
    monkeypatch.setattr(sys, "argv", list(map(str, again)))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert capsys.readouterr().out == printed
