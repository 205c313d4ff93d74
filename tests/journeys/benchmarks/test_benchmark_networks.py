"""The benchmark that puts clocks side by side: all get the same memory."""

import argparse
import importlib
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from offcert.runtime.hardware import hardware
from offcert.runtime.profiling.profile import profile
from offcert_lab.stages.problem import stage_problem

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("networks")


def options(clocks: list[str], memory: str) -> argparse.Namespace:
    return argparse.Namespace(
        input="2x16", hardware="t4", clock=clocks, memory=memory, time_limit=2.0, workers=1
    )


def test_clocks_get_the_same_memory_with_the_batch(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = module.run("gpt-tiny", options(["stages", "modules"], "50,96KiB"))
    card = hardware("t4", peak=True)
    stages = stage_problem("gpt-tiny", "2x16", card)
    modules = profile("gpt-tiny", "2x16", hardware=card)
    batch = 2 * 2 * 16 * 8
    half = stages.memory_at(Fraction(1, 2))
    assert [(row["clock"], row["memory"]) for row in rows] == [
        ("stages", half),
        ("modules", half - batch),
        ("stages", 96 * 2**10),
        ("modules", 96 * 2**10 - batch),
    ]
    table = capsys.readouterr().out.splitlines()
    assert f"| operations | {len(stages.trace)} | {len(modules.trace)} |" in table
    # Stages need more than that.
    assert stages.trace.least_memory > 96 * 2**10 > modules.trace.least_memory + batch
    (last,) = [line for line in table if line.startswith("| 96KiB = 96.00 KiB |")]
    assert "does not fit" in last
    assert rows[3]["objective"] >= modules.trace.compute_time


def test_one_clock_has_the_heuristics_beside_it(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = module.run("gpt-tiny", options(["stages"], "100"))
    assert row["memory"] == row["equal_memory"]
    assert row["objective"] == row["compute_time"]
    assert row["greedy"] == 1
    assert "| 100 % = " in capsys.readouterr().out
