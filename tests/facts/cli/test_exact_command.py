"""`offcert exact`: one table of the papers' algorithms, the exact models and the bound."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from offcert.certification.exact import ROWS, compare_exactly
from offcert.certification.methods import METHODS
from offcert.cli import main
from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.instances.two_partition import two_partition
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Problem

FAST = ["--time-limit", "20", "--workers", "1"]


def test_all_exact_models_agree_on_a_small_chain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = Chain([1, 2, 1], [1, 2, 1], [2, 3, 2, 1], [1, 1, 1, 1])
    problem = Problem("small", chain, Platform(10**6, 1))
    write_problem(tmp_path / "p.json", problem.with_memory(problem.trace.least_memory))
    assert main(["exact", str(tmp_path / "p.json"), "--json", *FAST]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["method"]: row for row in found["rows"]}
    assert list(rows) == list(ROWS)
    exact = {name: row["value"] for name, row in rows.items() if name not in ("dynprog", "greedy")}
    exact.pop("fluid-exact")
    assert set(exact.values()) == {found["best"]}
    assert found["best"] == found["proved"]
    assert all(row["gap"] == 0 for name, row in rows.items() if name in exact)


def test_what_does_not_apply_is_named_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problem(tmp_path / "p.json", two_partition([1, 2, 1], "interruptible"))
    assert main(["exact", str(tmp_path / "p.json"), *FAST]) == 0
    text = capsys.readouterr().out
    assert "pivot: needs atomic transfers, not interruptible" in text
    assert "gaps are to the optimum, 4" in text
    line = next(line for line in text.splitlines() if line.startswith("pure-milp"))
    assert line.split()[1] == "4"


def test_problems_that_recompute_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "checkpoint-chain", "--seed", "1", "-o", str(tmp_path / "p")]) == 0
    assert main(["exact", str(tmp_path / "p")]) == 2
    assert "only move tensors in the least time" in capsys.readouterr().err


def test_a_problem_without_schedules_is_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = two_partition([1, 2, 1])
    least = problem.trace.least_memory
    write_problem(tmp_path / "p.json", problem.with_memory(least - 1))
    assert main(["exact", str(tmp_path / "p.json"), *FAST]) == 0
    text = capsys.readouterr().out
    assert "there is no schedule: " in text
    assert "lacks 1 bytes" in text
    assert "gaps are to" not in text


def test_an_interrupt_ends_it_with_the_methods_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    method = replace(METHODS["greedy"], run=interrupted)
    monkeypatch.setitem(METHODS, "greedy", method)
    found = compare_exactly(two_partition([1, 2, 1]), time_limit=1, workers=1)
    assert [row.method for row in found.rows] == ["dynprog", "greedy"]
    assert "greedy: interrupted, and so were those that follow" in found.text()
