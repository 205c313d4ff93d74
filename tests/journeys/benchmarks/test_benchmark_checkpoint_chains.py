"""The benchmark of checkpoints on chains: what its rows say."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from offcert.heuristics.checkpoint.live import live_bytes
from papers.checkpoint_chains.networks import SELECTION_NETWORKS, selection_network

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("checkpoint_chains")


def test_every_model_stands_beside_the_live_bytes(module: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "chains.json"
    module.main(["--parts", "networks", "--batch", "2", "-o", str(path)])
    rows = json.loads(path.read_text())["networks"]
    assert {row["network"] for row in rows} == set(SELECTION_NETWORKS)
    for row in rows:
        chain = selection_network(row["network"], 2, pytorch=True)
        assert row["live"] == live_bytes(chain, row["checkpoints"]) <= row["plain"]
        assert row["stage_ends"] <= row["live"]
        assert row["reforwarding"] == row["static"] - chain.output[0] - chain.output[-1]
        same = [other for other in rows if other["network"] == row["network"]]
        assert row["needed"] <= row["again"]
        assert row["live"] >= min(other["live"] for other in same if other["method"] == "live")


def test_no_selection_has_fewer_live_bytes_than_the_least(module: ModuleType) -> None:
    found = module.models(6, 12)
    # Of what is no set of checkpoints only plain training is compared.
    segments = found["live_to_least"].pop("segments")
    assert segments["max"] <= 1
    assert all(ratios["min"] >= 1 for ratios in found["live_to_least"].values())
    assert all(ratios["max"] <= 1 for ratios in found["needed_of_again"].values())
    assert found["live_to_least"]["sqrt"]["max"] > 1
    # Stages keep more than their output, of which no model knows.
    assert found["model_to_live"]["dynamic"]["min"] < 0.9


def test_speed_is_measured_on_as_many_layers_as_asked(module: ModuleType) -> None:
    rows = module.speed(60)
    assert {row["layers"] for row in rows} == {60}
    (queue,) = (row for row in rows if "limits" in row)
    assert 1 <= queue["limits"] < 60 * 60 / 2
    text = "\n".join(module.lines({"speed": rows}))
    assert "algorithm-6, 60 layers" in text
    assert "(goal 2 s)" in text
