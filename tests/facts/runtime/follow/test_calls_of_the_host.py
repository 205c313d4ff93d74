"""The calls of Python functions in a step under a plan, which are exact for a given plan."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"


@pytest.fixture
def host_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    threads = torch.get_num_threads()
    yield importlib.import_module("host_time")
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_step_makes_few_calls(host_time) -> None:
    case = host_time.resnet("resnet18", (2, 2, 2, 2))
    rows = host_time.measure(case, steps=1, without=("keeps and moves",))
    calls = {row["way"]: row["calls"] for row in rows}
    for row in rows:
        # One segment a step is verified in full, in turn. Without any, addresses of storages that
        # are used again by chance take a few calls.
        least = 0.9 if row["segments"] else 0.99
        assert min(row["calls_by_step"]) > least * row["calls"]
    # However large the model is.
    assert calls["empty plan"] - calls["plain"] < 230
    assert 1.5 * calls["plain"] < calls["moves"] < 3 * calls["plain"]
    assert calls["moves all"] < 4 * calls["plain"]
    assert calls["runs again"] < 1.2 * calls["checkpointed"]
