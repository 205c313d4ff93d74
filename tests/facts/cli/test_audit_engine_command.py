"""The command `audit --engine`: exit codes, what it prints, and what it says of wrong input."""

import json
import sys

import pytest

from offcert.cli import main

MODULE = """
import torch
# As programs do that are never imported where there is no CUDA.
from torch.cuda import current_stream

COPYING = torch.cuda.Stream()


def wrong():
    host = torch.empty(4, pin_memory=True)
    with torch.cuda.stream(COPYING):
        host.copy_(torch.ones(4, device="cuda"), non_blocking=True)
    return host.sum().item()


def right():
    host = torch.empty(4, pin_memory=True)
    COPYING.wait_stream(current_stream())
    with torch.cuda.stream(COPYING):
        host.copy_(torch.ones(4, device="cuda"), non_blocking=True)
    COPYING.synchronize()
    return host.sum().item()


def unseen():
    torch.cuda.CUDAGraph()


def fails():
    raise KeyError("nothing")
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    (tmp_path / "their_engine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_engine", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    def command(*arguments):
        try:
            code = main(["audit", *arguments])
        except SystemExit as ending:
            code = ending.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def test_a_right_engine(run):
    code, out, _ = run("--engine", "their_engine:right", "--orders", "3")
    assert code == 0
    assert "0 faults in 4 operators and copies\n0 of 3 orders led to other values" in out


def test_a_wrong_engine(run):
    code, out, _ = run("--engine", "their_engine:wrong", "--orders", "3", "--json")
    document = json.loads(out)
    assert (code, document["clean"], document["engine"]) == (1, False, "their_engine:wrong")
    (found,) = document["findings"]
    assert [(found[use]["file"], found[use]["line"]) for use in ("first", "second")] == [
        ("their_engine.py", 12),
        ("their_engine.py", 13),
    ]
    assert document["streams"] == {"stream 1": "their_engine.py:6"}


def test_an_engine_that_fails(run):
    code, out, _ = run("--engine", "their_engine:fails")
    assert code == 1
    assert "their_engine.py:30: the engine fails with KeyError: 'nothing'" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "their_engine:unseen"], "torch.cuda.CUDAGraph, which the simulation does"),
        (["--engine", "their_engine:nothing"], "engine their_engine:nothing cannot be imported"),
        (["--engine", "their_engine:right", "problem.json"], "not both"),
        ([], "audit needs PROBLEM and --plan FILE, or --engine MODULE:FUNCTION"),
        (["--engine", "their_engine:right", "--orders", "-1"], "-1"),
    ],
)
def test_wrong_input_is_one_sentence(run, arguments, said):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
