"""The command `generate stages`: what it writes is a chain, and what cannot be one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from offcert.cli import main
from offcert.heuristics.evictions.dynprog import dynprog
from offcert.questions.schedule.check import check
from offcert.questions.schedule.files import read_problem
from offcert.questions.schedule.simulate import simulate


def test_the_papers_methods_take_what_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "chain.json"
    call = ["generate", "stages", "resnet18", "--input", "2x3x32x32", "--memory", "50%"]
    assert main([*call, "-o", str(output)]) == 0
    problem = read_problem(output)
    assert problem.name == "resnet18 2x3x32x32"
    assert problem.name in capsys.readouterr().out
    schedule = simulate(problem, dynprog(problem))
    assert check(problem, schedule) == []
    assert schedule.evicted
    assert problem.platform.memory < problem.trace.peak_memory


def test_a_network_that_cannot_be_traced_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "branching.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x if x.sum() > 0 else -x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    output = tmp_path / "p.json"
    call = ["generate", "stages", "branching:Net", "--input", "2x3", "-o", str(output)]
    assert main(call) == 2
    errors = capsys.readouterr().err
    assert "cannot be traced" in errors
    assert errors.count("\n") == 1
    assert not output.exists()
