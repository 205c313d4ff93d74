"""The benchmark of recomputation on graphs: its rows are what its parts say."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from papers.checkpoint_graphs.networks import TABLE_1


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    return importlib.import_module("checkpoint_graphs")


def test_the_published_solver_is_often_worse_and_never_better(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    benchmark.main(["random", "--graphs", "100", "--folder", str(tmp_path)])
    document = json.loads((tmp_path / "random.json").read_text())
    summary = document["summary"]
    for reading in ("definition", "algorithm"):
        assert summary[reading]["better"] == 0
        assert summary[reading]["worse"] + summary[reading]["equal"] == summary["graphs"] == 100
        assert summary[reading]["worse"] >= 40
        assert summary[reading]["largest_ratio"] > 1.5
    assert summary["definition"]["states_less_than_it_takes"] == 0
    assert len(document["rows"]) == 100


def test_networks_beside_the_published_table(benchmark: ModuleType, tmp_path: Path) -> None:
    arguments = ["networks", "--networks", "vgg13,resnet50,resnet152", "--folder", str(tmp_path)]
    benchmark.main(arguments)
    rows = {r["network"]: r for r in json.loads((tmp_path / "networks.json").read_text())["rows"]}
    # Chains are solved optimally, deep residual networks are not.
    assert rows["vgg13"]["solver"] == rows["vgg13"]["optimum"]
    assert rows["resnet50"]["solver"] > 1.1 * rows["resnet50"]["optimum"]
    assert rows["resnet152"]["reason"] == ""
    # Live bytes of plain training are what the paper measured, within three in a hundred.
    for row in rows.values():
        assert row["live_plain"] / 2**20 == pytest.approx(row["published"][0], rel=0.035)
        assert row["solver_cut"] >= row["live_cut"]
        assert row["published"][2] == next(t.cut for t in TABLE_1 if t.name == row["network"])


def test_a_proved_network(benchmark: ModuleType, tmp_path: Path) -> None:
    arguments = ["networks", "--networks", "vgg11", "--proofs", "--folder", str(tmp_path)]
    benchmark.main(arguments)
    (row,) = json.loads((tmp_path / "networks.json").read_text())["rows"]
    assert row["proved"] == row["optimum"]
    assert row["proved_gap"] == 0


def test_a_captured_step(benchmark: ModuleType, tmp_path: Path) -> None:
    benchmark.main(["captured", "--models", "gpt-tiny", "--folder", str(tmp_path)])
    (row,) = json.loads((tmp_path / "captured.json").read_text())["rows"]
    assert row["optimum"] <= row["solver"] < row["bytes"]
    assert row["live_solver"] < row["live_plain"]
