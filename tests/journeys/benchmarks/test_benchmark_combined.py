"""The benchmarks of the combined program and of its assumptions: what they measure adds up."""

import json
from pathlib import Path

import pytest

from benchmarks.assumptions import LIFTED, LIFTED_WHOLE, WHOLE, problems, summary, table, variants
from benchmarks.assumptions import main as assumptions_main
from benchmarks.combined import main as combined_main
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.questions.schedule.problem import Problem


def test_assumptions_are_priced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "assumptions.json"
    assumptions_main(["--chains", "2", "--stages", "2", "--output", str(output)])
    rows = json.loads(output.read_text())["rows"]
    assert len(rows) == 18
    for row in rows:
        base, free = row["base"], row[LIFTED]
        assert "?" not in row.values()
        if base is not None:
            assert all(row[name] <= base for name in variants() if "whole" not in name)
            assert row[WHOLE] is None or row[WHOLE] >= base
            assert free <= row[LIFTED_WHOLE]
    assert any(row[WHOLE] != row["base"] for row in rows)
    printed = capsys.readouterr().out
    assert "| all of these | 18 of 18 |" in printed
    assert printed.count("\n| ") == len(variants()) + 2


def test_what_was_not_solved_is_not_counted() -> None:
    rows = [
        {"base": 10, LIFTED: 8},
        {"base": 10, LIFTED: "?"},
        {"base": None, LIFTED: 20},
        {"base": 10, LIFTED: 10},
    ]
    assert summary(rows, LIFTED) == {
        "solved": 3,
        "feasible": 2,
        "differ": 1,
        "mean": 0.9,
        "extreme": 0.8,
        "newly_feasible": 1,
    }
    empty = [{"base": "?", **dict.fromkeys(variants(), "?")}]
    assert "| 0 of 1 | 0 of 0 | – | – | 0 |" in table(empty)


def test_chains_do_not_depend_on_how_many_there_are() -> None:
    def chain(problem: Problem) -> CheckpointChain | None:
        return problem.checkpoint_chain

    few, many = list(problems(1, 4, 0)), list(problems(2, 4, 0))
    assert [chain(p) for p in few] == [chain(p) for p in many[: len(few)]]
    assert chain(many[0]) != chain(many[-1])


def test_the_program_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "combined.json"
    combined_main(["--stages", "8", "--chains", "1", "--slots", "2", "40", "--output", str(output)])
    rows = json.loads(output.read_text())["rows"]
    assert len(rows) == 2 * 2 * 2
    found = [row for row in rows if "value" in row]
    assert {row["slots"] for row in found} == {40}
    for row in found:
        assert min(row["value"], row["overhead"], row["whole"]) >= 0
        assert row["without_link"] is None or row["value"] <= row["without_link"]
    assert "no plan" in capsys.readouterr().out
