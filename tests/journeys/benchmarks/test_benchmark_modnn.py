"""The benchmark of the moDNN paper's choices: rows that add up, and a table of them."""

import json
from pathlib import Path

import pytest

from benchmarks.modnn import main


def test_rows_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "modnn.json"
    arguments = ["--networks", "resnet34", "--memory", "0.5", "--image", "32", "--seconds", "3"]
    main([*arguments, "--workers", "1", "--output", str(output)])
    (row,) = json.loads(output.read_text())["rows"]
    assert row["valid"]
    assert 1 <= row["bound"] <= row["best"]
    assert row["best"] <= min(row["modnn"], row["vdnn_plus"]["time"]) + 1e-9
    assert row["gaps"].keys() <= {"modnn", "best", "whole"}
    assert all(gap >= 0 for gap in row["gaps"].values())
    assert "| resnet34 | 0.5 | " in capsys.readouterr().out
