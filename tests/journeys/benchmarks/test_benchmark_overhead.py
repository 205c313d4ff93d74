"""The benchmark of overhead: that what it times follows its plans, on a small network."""

import importlib
import json
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_plans_are_followed_and_ratios_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    overhead = importlib.import_module("overhead")
    small = {"layers": 1, "width": 16, "heads": 2, "vocabulary": 20, "context": 8}
    cases = (overhead.Case("tiny", "gpt", (4, 8), ("h",), small),)
    threads = torch.get_num_threads()
    try:
        path = tmp_path / "overhead.json"
        arguments = ["--steps", "2", "--time-limit", "0.5", "-o", str(path)]
        assert overhead.main(arguments, cases, cases) == 0
    finally:
        torch.set_num_threads(threads)
    document = json.loads(path.read_text())
    (row,), (again,) = document["rows"], document["again"]
    assert row["ratios"].keys() == {"empty plan", "plan at 25 %"}
    assert all(ratio > 0 for ratio in row["ratios"].values())
    assert 0 < row["moved_bytes"] < row["saved_bytes"]
    assert row["moved_storages"] > 0
    assert again["blocks"] == 1
    assert again["ratios"].keys() == {"rehearsal", "samples"}
    assert all(ratio > 0 for ratio in again["ratios"].values())
    (begun,) = document["first"]
    assert begun["kinds"]["studied"] == 1
    assert set(begun["kinds"]) == {"studied", "planned"}
    # One step is studied, three are timed.
    assert 5 <= begun["followed"] <= overhead.PATIENCE
    assert "| tiny |" in capsys.readouterr().out
