"""`offcert generate adversarial`, called as the console script calls it."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from offcert.cli import main
from offcert.questions.schedule.files import problem_digest, problem_from_json, read_problem
from offcert.verification.document import verify_file
from offcert_lab.hunts.adversarial import hunt
from offcert_lab.hunts.adversarial.chains import AdversarialChains
from support.clocks import counting_clock

COMMAND = ["generate", "adversarial"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    assert main([*COMMAND, *arguments]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.slow
def test_it_writes_what_the_generator_finds_and_its_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, certificate = tmp_path / "p.json", tmp_path / "c.json"
    arguments = ["--against", "prop3", "--stages", "5", "--largest", "9", "--tolerance", "25"]
    arguments += ["--shortest", "2", "--most", "6", "--steps", "60", "--seed", "3"]
    files = ["-o", str(path), "--certificate", str(certificate)]
    summary: dict[str, Any] = json.loads(said(capsys, *arguments, *files, "--json")[0])
    chains = AdversarialChains(
        against="prop3", stages=5, largest=9, tolerance=25, shortest=2, most=6, steps=60
    )
    assert problem_digest(read_problem(path)) == problem_digest(chains.problem(3))
    verification = verify_file(certificate)
    assert verification.valid
    assert summary["found"]
    assert summary["minimised"]
    assert summary["optimum"] == summary["over"] == verification.certificate.result.objective
    assert summary["steps"] == 60
    assert summary["stages"] >= 5
    text, _ = said(capsys, *arguments, *files)
    assert f"optimum is {summary['ratio']:.4g} times prop3" in text
    assert "minimised" in text
    printed, _ = said(capsys, *arguments)
    assert problem_digest(problem_from_json(json.loads(printed))) == problem_digest(
        read_problem(path)
    )


@pytest.mark.slow
def test_a_time_limit_ends_it_and_no_plans_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.json"
    monkeypatch.setattr(hunt, "time", counting_clock(1 / 1000))
    arguments = ["--against", "dynprog", "--time-limit", "1", "-o", str(path)]
    summary = json.loads(said(capsys, *arguments, "--json")[0])
    assert 0.9 < summary["seconds"] < 1.1
    assert 20 < summary["steps"] < 1000
    assert summary["no_plans"] > 0
    assert problem_from_json(summary["no_plan"]).chain is not None
    source = read_problem(path).source
    assert source is not None
    assert source["steps"] == summary["steps"]
    assert (source["over"], source["under"]) == (summary["over"], summary["under"])


def test_finding_nothing_is_said_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    arguments = ["--against", "fractional-subset-sum", "--by", "fractional", "--steps", "30"]
    text, _ = said(capsys, *arguments, "-o", str(path), code=1)
    assert "30 problems tried, and fractional-subset-sum and fractional never differed" in text
    assert not path.exists()
    out, err = said(capsys, *arguments, code=1)
    assert out == ""
    assert "never differed" in err


def test_help_names_every_knob_of_the_generator(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*COMMAND, "--help"])
    text = capsys.readouterr().out
    for item in fields(AdversarialChains):
        assert f"--{item.name} " in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "?"], 'against must be one of "'),
        (["--against", "greedy", "--by", "x"], "by must be one of"),
        (["--against", "greedy", "--stages", "0"], "stages must be at least 1, not 0"),
        (["--against", "greedy", "--steps", "0"], "steps must be at least 1, not 0"),
        (["--against", "greedy", "-o", "/dev/null/p.json"], "/dev/null is no folder"),
        (["--against", "greedy", "--seed", "-1"], "seed must be at least 0, not -1"),
        (["--against", "pivot", "--transfers", "fractional"], "needs atomic transfers"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = said(capsys, *arguments, code=2)
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--against"),
        (["--against", "greedy", "--time-limit", "0"], "positive number of seconds, not 0"),
        (
            ["--against", "greedy", "--time-limit", "x"],
            "must be a number of seconds, such as 2.5, not x",
        ),
        (["--against", "greedy", "--steps", "x"], "must be an integer, not x"),
    ],
)
def test_bad_arguments_get_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*COMMAND, *arguments])
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_checkpoints_are_hunted_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    command = ["generate", "adversarial", "--stages", "4", "--steps", "80", "-o", str(path)]
    assert main([*command, "--against", "sqrt"]) == 0
    text = capsys.readouterr().out
    assert "adversarial-checkpoint-sqrt-4-0: sqrt is " in text
    assert "times live-selection" in text
    problem = read_problem(path)
    assert problem.checkpoint_chain is not None
    assert problem.source is not None
    assert problem.source["over"] > problem.source["under"]
    for arguments, message in (
        (["--against", "sqrt", "--transfers", "atomic"], "--transfers means nothing against sqrt"),
        (["--against", "sqrt", "--by", "greedy"], "by must be one of"),
        (["--against", "sqr"], "did you mean sqrt?"),
        (["--against", "?"], "live-selection"),
    ):
        assert main([*command, *arguments]) == 2
        errors = capsys.readouterr().err
        assert message in errors
        assert errors.count("\n") == 1
