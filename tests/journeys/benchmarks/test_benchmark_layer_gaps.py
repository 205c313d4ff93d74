"""The benchmark of proved gaps where many layers are equal: its table, and its limits."""

from __future__ import annotations

import importlib
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.documents import write_json
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.questions.schedule.problem import Problem, Recompute


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    return importlib.import_module("layer_gaps")


def row(**changes: object) -> dict[str, object]:
    found = {"model": "m", "batch": 2, "sequence": 1024, "hardware": "t4", "memory": 1 << 30}
    found |= {"computing": 1000, "objective": 1250, "bound": 1200, "goal": 0.05, "processor": 9.6}
    return found | changes


def test_a_written_run_is_printed_again(
    command: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(), row(sequence=0, objective=None, bound=1000)]
    write_json(tmp_path / "run.json", {"format": command.FORMAT, "rows": rows})
    command.main(["--again", str(tmp_path / "run.json")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| m, 2 × 1,024 | t4 | 1.00 GiB | 1.250 | 1.200 | 4.00 % | 5.0 % | 10 s |"
    assert lines[3] == "| m, 2 | t4 | 1.00 GiB | – | 1.000 | inf % | 5.0 % | 10 s |"


def test_a_row_is_what_is_certified_at_the_limit(command: ModuleType) -> None:
    step = command.Step("two", 2, 0, "v100-pcie", ("1/1",), 0.05)
    network = Network(
        [Computation("A", 4, writes=(0,)), Computation("B", 6, reads=(0,), repeatable=False)],
        [Value("x", 6)],
    )
    problem = Problem("two", network, Platform(8, Fraction(1)), recompute=Recompute.ANY)
    found = command.measure(step, problem, "1/1", 5.0)
    # Everything fits.
    assert found["memory"] == 6
    assert found["computing"] == found["bound"] == found["objective"] == 10
    assert command.bytes_of(problem, "1/3") == 2
    assert command.bytes_of(problem, "3GiB") == 3 << 30
