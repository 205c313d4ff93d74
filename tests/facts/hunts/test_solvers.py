"""The hunt for solvers that are wrong: right ones pass, and claims that are forged are found."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import offcert
from offcert.cli import main
from offcert.formulations.exported.integer_program import CellModel
from offcert_lab.hunts import solvers
from offcert_lab.hunts.solvers import SOLVERS, Claim, claim_of, drawn, examined, hunt_solvers


def test_solvers_agree_with_what_is_proved() -> None:
    for seed in range(3):
        problem = drawn(seed)
        claims, wrong = examined(problem)
        assert wrong is None
        result = offcert.certify(problem, time_limit=10).result
        assert result.objective == result.proved_bound
        last = problem.trace.durations[-1]
        assert [claim.solver for claim in claims] == list(SOLVERS)
        assert {claim.least for claim in claims} == {result.proved_bound - last}
        assert {claim.found for claim in claims} == {result.objective - last}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"least": 1000}, "CBC says that none is shorter than"),
        ({"found": 0}, "CBC has a solution of"),
        ({"infeasible": True, "least": None, "found": None}, "CBC says that there is no schedule"),
    ],
)
def test_a_solver_that_is_wrong_is_found(change: dict[str, Any], fault: str) -> None:
    def forged(model: CellModel, solver: str, seconds: float) -> Claim:
        claim = claim_of(model, solver, seconds)
        return replace(claim, **change) if solver == "CBC" else claim

    # The first problem in which something takes longer than its last operation.
    claims, wrong = examined(drawn(1), ("CP-SAT", "CBC"), forged)
    assert len(claims) == 2
    assert wrong is not None
    assert [text for text in wrong.faults if text.startswith(fault)] == list(wrong.faults)


def test_what_is_kept_is_enough_to_see_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forged(model: CellModel, solver: str, seconds: float) -> Claim:
        claim = claim_of(model, solver, seconds)
        return replace(claim, infeasible=solver == "HiGHS")

    def examine(problem: offcert.Problem) -> Any:
        return examined(problem, ("HiGHS",), forged)

    monkeypatch.setattr(solvers, "examined", examine)
    folder = tmp_path / "kept"
    assert main(["hunt", "solvers", "--problems", "1", "--seed", "5", "-o", str(folder)]) == 1
    assert "solvers-5: HiGHS says that there is no schedule" in capsys.readouterr().out
    names = {path.name for path in folder.iterdir()}
    stem = "solvers-5"
    assert names == {f"{stem}.json", f"{stem}.lp", f"{stem}.mps", f"{stem}-claims.json"}
    assert offcert.read_problem(folder / "solvers-5.json") == drawn(5)
    claims = json.loads((folder / "solvers-5-claims.json").read_text())
    assert claims["claims"][0]["infeasible"] is True
    assert "solver_status" in claims["claims"][0]["statistics"]


def test_the_command_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hunt", "solvers", "--problems", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["problems"], document["contradictions"]) == (2, [])
    assert document["closed"] == dict.fromkeys(SOLVERS, 2)


def test_a_time_limit_ends_it() -> None:
    assert hunt_solvers(seconds=1e-9).problems == 0


def test_an_interrupt_while_something_is_proved_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(problem: offcert.Problem, **settings: Any) -> offcert.Certificate:
        certificate = offcert.certify(problem, **settings)
        return replace(certificate, notes=replace(certificate.notes, interrupted=True))

    monkeypatch.setattr(solvers, "certify", interrupted)
    assert hunt_solvers(problems=3).problems == 0


def test_where_contradictions_go_is_tried_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(solvers, "examined", None)
    there = tmp_path / "there"
    there.write_text("mine")
    for folder, said in (
        (there, "is a file: contradictions need a folder"),
        (there / "below", "cannot be made: Not a directory"),
        ("-", "contradictions need a folder, not -"),
    ):
        assert main(["hunt", "solvers", "-o", str(folder)]) == 2
        assert said in capsys.readouterr().err
    assert there.read_text() == "mine"
