"""What heuristics make of random networks is legal, and would be found out if it were not."""

import importlib
import json
from pathlib import Path

import pytest

from offcert.heuristics.checkpoint import graph_networks

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("fuzz_expansions")


def test_all_heuristics_make_legal_executions(fuzz, tmp_path):
    path = tmp_path / "found.json"
    assert fuzz.main(["--count", "80", "--seed", "5", "-o", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["failures"] == []
    for tally in found["counts"].values():
        assert tally["that run something again"] > 5


def test_components_that_run_again_too_early_are_found(fuzz, monkeypatch):
    monkeypatch.setattr(
        graph_networks.Unrolling, "latest_readers", lambda self: [-1] * len(self.network)
    )
    found = fuzz.fuzz(60, 5, (fuzz.graph_selections,))
    assert found["failures"]
    assert "which is not there" in found["failures"][0]["fault"]


def test_changes_that_are_made_twice_are_found(fuzz, monkeypatch):
    monkeypatch.setattr(graph_networks.Groups, "lasts", lambda self, index: False)
    faults = [each["fault"] for each in fuzz.fuzz(120, 5, (fuzz.graph_selections,))["failures"]]
    assert any("no copy is what the program would find" in fault for fault in faults)


def test_what_is_changed_in_place_after_the_turn_does_not_leave_before(fuzz):
    """The joint search took a gap for granted there, and ended with a `KeyError`."""
    assert fuzz.fuzz(8, 0)["failures"] == []
