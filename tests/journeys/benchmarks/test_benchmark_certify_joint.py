"""The benchmark of joint certificates prints its table and writes what it has measured."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("asked", [["--memory", "1/2"], ["--overhead", "20%"]])
def test_a_small_network(
    asked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "joint.json"
    script = ROOT / "benchmarks" / "certify_joint.py"
    call = [script, "resnet18", "--input", "8x3x64x64", *asked, "--means", "offload", "both"]
    call += ["--time-limit", "1", "--workers", "1", "-o", file]
    call += ["--certificates", tmp_path / "certificates"]
    monkeypatch.setattr(sys, "argv", [str(each) for each in call])
    runpy.run_path(str(script), run_name="__main__")
    rows = {row["means"]: row for row in json.loads(file.read_text())}
    assert set(rows) == {"offload", "both"}
    for row in rows.values():
        assert row["lower_bound"] <= row["objective"]
        assert row["makespan"] >= row["compute_time"]
        if asked[0] == "--overhead":
            assert 5 * row["makespan"] <= 6 * row["compute_time"]
    # What offloading alone can do, both can.
    assert rows["both"]["lower_bound"] <= rows["offload"]["objective"]
    assert len(list((tmp_path / "certificates").iterdir())) == 2
    assert capsys.readouterr().out.count("resnet18 8x3x64x64") == 2
