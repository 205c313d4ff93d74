"""Plans for a machine that was measured are followed behind the host at hand."""

import importlib
import json
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from offcert.certification.ladder import certify
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


def test_a_plan_is_followed_with_smaller_inputs(monkeypatch, folder) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    measured_host = importlib.import_module("measured_host")
    monkeypatch.setattr(measured_host, "CASES", {"small": small})
    output = folder / "rows.json"
    monkeypatch.setattr(sys, "argv", ["x", str(folder), "--json", str(output)])
    measured_host.main()
    [row] = json.loads(output.read_text())["rows"]
    assert row["steps"] == {"planned": 9}
    assert (row["plan"], row["measured_there"]) == ("small-cert-50.json", 2.5)
    # The recorded host takes half a second, which operations of microseconds wait for.
    assert row["launch"] > 1
    assert row["host"] > 100 > row["forecast"]
    assert row["idle"] == pytest.approx(row["hosted"] - row["forecast"])
    assert row["hosted"] >= row["forecast"]
