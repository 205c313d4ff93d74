"""`offcert generate core`, called as the console script calls it."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from offcert.cli import main
from offcert.questions.schedule.files import problem_digest, problem_from_json, read_problem
from offcert_lab.commands.core import _NUMBERS, map_table
from offcert_lab.hunts.effort import ProofEffort
from offcert_lab.hunts.phase import SHAPES, CoreProblems, EffortMap, Point

COMMAND = ["generate", "core"]
SMALL = ["--stages", "4", "--kind", "narrow", "--labels", "500", "--seed", "3"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    assert main([*COMMAND, *arguments]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.slow
def test_it_writes_what_the_generator_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    arguments = [*SMALL, "--points", "15"]
    core = CoreProblems(stages=4, shape="narrow", labels=500, points=15)
    digest = problem_digest(core.problem(3))
    summary: dict[str, Any] = json.loads(said(capsys, *arguments, "-o", str(path), "--json")[0])
    assert problem_digest(read_problem(path)) == digest
    assert summary["points"] == len(summary["map"]) == 15
    assert not summary["complete"]
    assert not summary["interrupted"]
    hardest = [
        row
        for row in summary["map"]
        if (row["memory"], row["ratio"]) == (summary["memory_part"], summary["ratio"])
    ]
    assert len(hardest) == 1
    assert hardest[0]["labels"] == summary["effort"]["labels"]
    assert hardest[0]["labels"] == max(row["labels"] for row in summary["map"])
    printed, table = said(capsys, *arguments, "--map")
    assert problem_digest(problem_from_json(json.loads(printed))) == digest
    assert table.startswith("| memory | ratio 1/2 | ratio 1 | ratio 2 | ratio 4 | ratio 8 |")


@pytest.mark.slow
def test_the_map_is_a_table_with_the_hardest_point_in_bold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _ = said(capsys, *SMALL, "--points", "12", "--map", "-o", str(tmp_path / "p.json"))
    lines = text.splitlines()
    assert lines[0] == "core-narrow-4-3: 8 operations"
    rows = [line for line in lines if line.startswith("| ") and "%" in line.split("|")[1]]
    assert [row.split("|")[1].strip() for row in rows] == ["0 %", "10 %", "20 %"]
    assert sum(row.count("**") for row in rows) == 2
    # Twelve points: two full rows of five and two of the third.
    assert [row.count("–") for row in rows] == [0, 0, 3]
    assert "12 points" in text
    assert "not to its end" in text
    assert (
        "  nothing hard   proofs closed each of these points within 500 labels: more --points, "
    ) in text
    open_, _ = said(
        capsys,
        *("--stages", "12", "--labels", "100", "--points", "3", "-o", str(tmp_path / "p.json")),
    )
    assert "still open by" in open_
    assert "nothing hard" not in open_


def test_points_that_were_given_up_are_in_brackets() -> None:
    course = {-8: [9, 9, 9], 0: [4]}

    def measure(point: Point, labels: int) -> ProofEffort:
        return ProofEffort(7, 1000, 1000 - course[point.ratio_step].pop(0))

    found = EffortMap(measure, 160, most_points=2)
    found.run()
    assert map_table(found).splitlines() == [
        "| memory | ratio 1/2 | ratio 1 |",
        "| ---: | ---: | ---: |",
        "| 0 % | **0.900 %** | (0.400 %) |",
    ]


def test_a_budget_ends_it_and_the_source_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    arguments = [*SMALL, "--budget", "0.000001", "-o", str(path)]
    summary = json.loads(said(capsys, *arguments, "--json")[0])
    assert summary["interrupted"]
    source = read_problem(path).source
    assert source is not None
    assert (source["ended"], source["points"]) == ("interrupted", 1)


def test_kinds_are_listed_and_bad_input_ends_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "--kind", "?")[0].split() == list(SHAPES)
    target = tmp_path / "p.json"
    for arguments, text in (
        (["--kind", "round"], "shape must be one of"),
        (["--stages", "0"], "stages must be at least 2, not 0"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--labels", "5"], "labels must be at least 100, not 5"),
    ):
        out, err = said(capsys, *arguments, "-o", str(target), code=2)
        assert out == ""
        assert err.startswith("offcert: ")
        assert text in err
        assert err.count("\n") == 1
        assert not target.exists()
    for arguments in (["--budget", "0"], ["--budget", "x"], ["--stages", "x"]):
        with pytest.raises(SystemExit) as error:
            main([*COMMAND, *arguments])
        assert error.value.code == 2


def test_all_knobs_can_be_set() -> None:
    assert {item.name for item in fields(CoreProblems)} == {"shape", *_NUMBERS}
