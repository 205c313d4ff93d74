"""The benchmark of long traces: what a row says, and what the last line makes of the rows."""

import importlib
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

from offcert.questions.schedule.files import write_problem
from support.problems.long_problems import long_problem

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("long_traces")


def test_a_row_says_what_the_certificate_says(module: ModuleType) -> None:
    problem = long_problem(2, 400, 150)
    row = module.measure(problem, 2.0, 1, 0)
    assert (row["operations"], row["gaps"]) == (len(problem.trace), len(problem.trace.gaps))
    assert row["gap"] == (row["objective"] - row["lower_bound"]) / row["objective"]
    assert row["evidence"] == "proved"
    assert row["faults"] == []
    # A smaller gap is not reached before a larger one.
    times = [row["reached"].get(f"{100 * level:g} %", 1e9) for level in module.LEVELS]
    assert times == sorted(times)
    assert "INVALID" not in module.line("10 %", row)
    assert "INVALID: bound 0" in module.line("10 %", row | {"faults": ["bound 0"]})


def test_the_summary_counts_what_is_reached_and_keeps_the_worst(module: ModuleType) -> None:
    def row(gap: float, over: float) -> dict[str, float]:
        return {"gap": gap, "over": over, "verify_seconds": 1.0, "peak_mib": 99.5}

    text = module.summary([row(0.0, 0.5), row(0.0005, 0.0), row(0.02, 0.25)])
    assert text.startswith("3 problems: 2 within 1 %, 2 within 0.1 %, 1 within 0.01 %;")
    assert "2.0000 % open, 0.5 s over the limit" in text
    assert text.endswith("100 MiB")


def test_problems_are_read_and_generated_at_every_limit(module: ModuleType, tmp_path: Path) -> None:
    problem = long_problem(2, 100, 40)
    path = tmp_path / "p.json"
    write_problem(path, problem)
    asked = Namespace(problems=[path], stages=[8], at=["0", "50"], memory=[10**9], seed=0)
    found = [(label, each.platform.memory) for label, each in module.problems(asked)]
    least = problem.trace.least_memory
    half = least + (problem.trace.peak_memory - least) // 2
    assert [label for label, _ in found] == ["0 %", "50 %", "1000000000 B"] * 2
    assert [memory for _, memory in found][:3] == [least, half, 10**9]
