"""Plans for a machine that was measured are followed behind the host at hand."""

import importlib
import json
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn

from offcert.certify.ladder import certify
from offcert.core.platform import Kind
from offcert.questions.schedule.files import write_problem
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.profiling.profile import profile
from support.docs.docs_pages import ROOT

LINK = {"alone": [10**9, 9 * 10**8], "together": [8 * 10**8, 7 * 10**8]}
LINK |= {"computing": LINK["together"]}


def small() -> TrainingStep:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.Sigmoid())]
    model = nn.Sequential(*layers)
    return TrainingStep(model, lambda model, x: model(x).square().mean(), torch.randn(2, 8))


@pytest.fixture(name="folder")
def _folder(tmp_path):
    step = replace(small(), batch=torch.randn(16, 8))
    problem = profile(step, hardware="t4", memory="50%")
    problem = replace(problem, source=problem.source | {"measurement": {"link": LINK}})
    write_problem(tmp_path / "small-problem.json", problem)
    certify(problem, time_limit=3).write(tmp_path / "small-cert-50.json")
    rows = [
        {"network": "small 16x8", "way": "plain", "ms": 1, "host_ms": 500.0},
        {"network": "small 16x8", "way": "small-cert-50.json", "ms": 2.5},
    ]
    (tmp_path / "measured.json").write_text(json.dumps({"rows": rows}))
    return tmp_path


@pytest.mark.parametrize("smaller", [None, 8])
def test_a_plan_is_followed_with_smaller_inputs(monkeypatch, folder, smaller) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    measured_host = importlib.import_module("measured_host")
    host_ms = None if smaller is None else 500.0
    monkeypatch.setattr(
        measured_host, "CASES", {"small": measured_host.Case(small, smaller, host_ms)}
    )
    output = folder / "rows.json"
    arguments = ["x", str(folder), "--time-limit", "3", "--json", str(output)]
    monkeypatch.setattr(sys, "argv", arguments)
    measured_host.main()
    [row] = json.loads(output.read_text())["rows"]
    assert row["steps"] == {"planned": 9}
    assert row["plan"] == ("small-cert-50.json" if smaller is None else "small, captured here")
    # The recorded host takes half a second, which operations of microseconds wait for.
    assert row["launch"] > 1
    assert row["host"] > 100 > row["forecast"]
    assert row["idle"] == pytest.approx(row["hosted"] - row["forecast"])
    assert row["hosted"] >= row["forecast"]
    assert smaller is not None or row["measured_there"] == 2.5


def test_a_step_that_is_captured_here_moves_less_at_lower_rates(monkeypatch, folder) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    measured_host = importlib.import_module("measured_host")
    measured = measured_host.read_problem(folder / "small-problem.json")
    platform = measured.platform
    found = measured_host.captured_here(measured, small(), platform, 8)
    assert found.plain().trace.durations == measured.plain().trace.durations
    for kind in Kind:
        assert found.platform.rate(kind) == platform.rate(kind) / 8
        sizes = [
            (each.size, other.size)
            for each, other in zip(
                found.plain().trace.tensors, measured.plain().trace.tensors, strict=True
            )
        ]
        assert any(size * 8 == other for size, other in sizes)
        size, other = max(sizes)
        assert size / found.platform.rate(kind) == other / platform.rate(kind)
    assert found.memory_at(Fraction(1, 4)) == found.platform.memory
