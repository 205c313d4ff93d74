"""The benchmark of the runtime: its ways train bitwise, and its rows hold what a device says."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from offcert.core.documents import read_json
from offcert.questions.schedule.problem import Recompute
from offcert.runtime.zoo import build

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def loaded(name: str):
    """Return a module of the folder; a plain import finds the folder of tests of that name."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


before = sys.modules.get("runtime")
loaded("runtime_rows")
ways = loaded("runtime_ways")
runtime = loaded("runtime")
for name in ("runtime", "runtime_rows", "runtime_ways"):
    del sys.modules[name]
if before is not None:
    sys.modules["runtime"] = before


@pytest.fixture(scope="module")
def bench():
    torch.manual_seed(0)
    return runtime.Bench("gpt-tiny", (2, 16), "simulated", seconds=2, repetitions=1)


def gradients(bench) -> list[torch.Tensor]:
    found = [each.grad for each in bench.step.model.parameters()]
    for each in bench.step.model.parameters():
        each.grad = None
    return [each for each in found if each is not None]


@pytest.mark.parametrize("kind", ["SaveOnHost", "Threshold", "Checkpointed"])
def test_every_way_trains_bitwise_and_leaves_nothing_behind(bench, kind) -> None:
    way = getattr(ways, kind)()
    gradients(bench)
    torch.manual_seed(1)
    plain = bench.way(ways.Plain())
    expected = gradients(bench)
    torch.manual_seed(1)
    row = bench.way(way)
    for one, other in zip(gradients(bench), expected, strict=True):
        assert torch.equal(one, other)
    computing = sum(bench.problem.plain().trace.durations)
    assert plain.time == computing
    assert row.time > computing
    assert all("forward" not in module.__dict__ for module in bench.step.model.modules())


def test_a_plan_at_the_peak_of_another_way_takes_what_was_forecast(bench) -> None:
    at = bench.way(ways.Checkpointed())
    for recompute in (Recompute.NONE, Recompute.ANY):
        row = bench.planned(at, recompute)
        assert row.peak <= at.peak
        assert row.bound <= row.time == row.predicted <= at.time
    assert row.hosted is None
    text = runtime.table([at, row])
    assert "checkpointed" in text
    assert "offload and recompute" in text


def test_a_host_that_is_behind_is_in_the_forecast_for_both(bench) -> None:
    count, each = len(bench.problem.plain().trace), 10**6
    source = {**bench.problem.source, "measurement": {"launch_ns": [each] * count}}
    bench.problem = replace(bench.problem, source=source)
    row = bench.planned(bench.way(ways.Checkpointed()), Recompute.NONE)
    assert row.predicted < count * each
    # The host is behind everywhere; the last operation ends when it has been handed over.
    assert row.hosted == count * each


def test_plans_are_followed_behind_the_host_at_hand_if_that_is_asked_for(bench) -> None:
    plain = bench.way(ways.Plain())
    assert plain.behind is None
    bench.host = True
    try:
        at, plain = bench.way(ways.Checkpointed()), bench.way(ways.Plain())
        row = bench.planned(at, Recompute.NONE)
    finally:
        bench.host = False
    # Of operations that take microseconds nothing is fast enough.
    assert plain.behind > plain.time
    assert row.behind > row.time
    assert at.behind is None
    head, first, last = runtime.table([plain, at]).splitlines()
    assert "behind host" in head
    assert f"{plain.behind / 1e6:.2f} ms" in first
    assert " ms" not in last


def test_less_than_any_plan_takes_is_said(bench) -> None:
    row = bench.planned(replace(bench.way(ways.Plain()), peak=1), Recompute.NONE)
    assert row.peak is None
    assert "INFEASIBLE" in row.note


def test_blocks_of_networks() -> None:
    assert len(ways.blocks(build("resnet50"))) == 16
    assert ways.blocks(build("alexnet")) == []


def test_rows_are_written(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(runtime, "WAYS", (ways.Checkpointed(),))
    file = tmp_path / "rows.json"
    runtime.main(
        ["--networks", "gpt-tiny", "--shape", "2x16", "--time-limit", "1", "-o", str(file)]
    )
    rows = read_json(file)["rows"]
    assert [row["way"] for row in rows] == [
        "plain", "checkpointed", "offload", "offload and recompute"
    ]  # fmt: skip
    assert "checkpointed" in capsys.readouterr().out
