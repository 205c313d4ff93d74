"""The commands about instances, called as the console script calls them."""

import json
from pathlib import Path
from typing import Any

import pytest

from offcert.cli import command_line as program
from offcert.cli import compare, main
from offcert.instances.cnn import CnnChains
from offcert.instances.kinds import KINDS
from offcert.instances.library import FOLDER, load
from offcert.questions.schedule.files import problem_digest, problem_from_json, read_problem


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def said_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(said(capsys, *arguments, "--json"))
    return loaded


@pytest.mark.parametrize("kind", KINDS)
def test_generate_writes_the_generators_problem(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    summary = said_json(capsys, "generate", kind, "--seed", "4", "-o", str(path))
    expected = KINDS[kind]().problem(4)
    assert problem_digest(read_problem(path)) == problem_digest(expected)
    assert summary["operations"] == len(expected.trace)
    printed = json.loads(said(capsys, "generate", kind, "--seed", "4", "-o", "-"))
    assert problem_digest(problem_from_json(printed)) == problem_digest(expected)


def test_knobs_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "p.json")
    knobs = ["--stages", "10", "--ratio", "3/2", "--spikes", "4"]
    said(capsys, "generate", "cnn", *knobs, "--memory", "50%", "-o", path)
    from fractions import Fraction

    expected = CnnChains(stages=10, ratio=Fraction(3, 2), spikes=4).problem(0, Fraction(1, 2))
    assert problem_digest(read_problem(path)) == problem_digest(expected)
    said(capsys, "generate", "unet", "--no-hold", "-o", path)
    assert read_problem(path).name == "unet-4-0-free"


def test_a_reduction_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem, certificate = str(tmp_path / "p.json"), str(tmp_path / "c.json")
    text = said(
        capsys, "generate", "three-partition", "--values", "26,33,41,27,35,38", "-o", problem
    )
    assert "yes: a schedule of length 400 exists" in text
    said(capsys, "certify", problem, "--time-limit", "20", "-o", certificate)
    back = said_json(capsys, "partition", certificate)["partition"]
    values = [26, 33, 41, 27, 35, 38]
    assert sorted(index for members in back for index in members) == list(range(6))
    assert [sum(values[index] for index in members) for members in back] == [100, 100]
    arguments = ["generate", "two-partition", "--values", "5,3,1,1,4", "--transfers", "atomic"]
    assert "yes: a schedule of length 14 exists" in said(capsys, *arguments, "-o", problem)
    said(capsys, "certify", problem, "--time-limit", "20", "-o", certificate)
    halves = said(capsys, "partition", certificate).splitlines()
    assert [sum(map(int, line.split(" + "))) for line in halves] == [7, 7]
    text = said(capsys, "generate", "two-partition", "--values", "5,1,1,1", "-o", problem)
    assert "no: no schedule of length 8 exists" in text
    said(capsys, "certify", problem, "--time-limit", "5", "-o", certificate)
    refused = said(capsys, "partition", certificate, code=2)
    assert "only a schedule of length 8 holds a half" in refused


def test_library_list_show_and_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = said_json(capsys, "library", "list", "--family", "resnet50-224-*")["problems"]
    assert [row["name"] for row in rows][:2] == ["resnet50-224-b32-m0", "resnet50-224-b32-m5"]
    assert len(rows) == 6
    some = ("library", "list", "--family", "core-*")
    every = said_json(capsys, *some)["problems"]
    open_ = said_json(capsys, *some, "--open")["problems"]
    assert 0 < len(open_) < len(every)
    assert {row["name"] for row in every} - {row["name"] for row in open_} == {
        row["name"] for row in every if row["status"] == "OPTIMAL"
    }
    shown = said_json(capsys, "library", "show", "three-partition-4-100-yes")
    assert shown["value"] == shown["lower_bound"] == 800
    assert shown["source"]["solution"]["answer"] == "yes"
    assert shown["record"]["value_by"] in said(
        capsys, "library", "show", "three-partition-4-100-yes"
    )
    path = tmp_path / "p.json"
    said(capsys, "library", "get", "cnn-24-0-m5", "-o", str(path))
    assert problem_digest(read_problem(path)) == problem_digest(load("cnn-24-0-m5"))
    printed = json.loads(said(capsys, "library", "get", "cnn-24-0-m5"))
    assert problem_digest(problem_from_json(printed)) == problem_digest(load("cnn-24-0-m5"))


def test_library_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family = tmp_path / "cnn-12-1.json"
    text = (FOLDER / family.name).read_text()
    document = json.loads(text)
    for entry in document["entries"]:
        entry["record"] = {"value": None, "value_by": None, "bounds": [], "plan": None}
    family.write_text(json.dumps(document))
    folder = ["--folder", str(tmp_path)]
    problem, certificate = str(tmp_path / "p.txt"), str(tmp_path / "c.txt")
    said(capsys, "library", "get", "cnn-12-1-m10", "-o", problem, *folder)
    said(capsys, "solve", problem, "--method", "greedy", "-o", certificate)
    improved = said_json(capsys, "library", "add", certificate, *folder)["improved"]
    assert improved[0]["name"] == "cnn-12-1-m10"
    assert (
        improved[0]["value"]
        == said_json(capsys, "library", "show", "cnn-12-1-m10", *folder)["value"]
    )
    refused = said(capsys, "library", "add", certificate, *folder, code=2)
    assert refused.startswith(f"offcert: {certificate}: the record of cnn-12-1-m10 is value ")
    assert refused.count("\n") == 1
    assert (FOLDER / family.name).read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "two-partition", "--values", "1,2"], "even sum, not 3"),
        (["generate", "three-partition", "--m", "1", "--answer", "no"], 'answer is "no"'),
        (["generate", "cnn", "--stages", "0"], "stages must be at least 1, not 0"),
        (["generate", "cnn", "--seed", "-1"], "seed must be at least 0, not -1"),
        (["generate", "cnn", "--memory", "lots"], "memory must look like"),
        (["generate", "cnn", "-o", "/dev/null/p.json"], "/dev/null is no folder"),
        (["library", "show", "nothing-m0"], 'there is no problem "nothing-m0"'),
        (["library", "list", "--folder", "/nowhere"], "/nowhere is not a folder"),
        (["library", "add", "/nowhere/c.json"], "/nowhere/c.json cannot be read"),
        (["partition", "/nowhere/c.json"], "/nowhere/c.json cannot be read"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, *arguments, code=2)
    assert message in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate"], "KIND"),
        (["generate", "rnn"], "KIND must be one of cnn, transformer, "),
        (["generate", "transformr"], 'not "transformr"; did you mean transformer?'),
        (["library", "shw", "x"], "; did you mean show?"),
        (["library", "list", "--famly", "x"], "library list has no option --famly; did you mean"),
        (["library", "list", "x"], "library list takes no further argument x"),
        (["generate", "cnn", "--ratio", "1/0"], 'must look like "3/2" or "1.5", not 1/0'),
        (["generate", "cnn", "--stages", "x"], "must be an integer, not x"),
        (["generate", "three-partition", "--values", "1,,2"], "must be an integer"),
        (["generate", "three-partition", "--memory", "5%"], "has no option --memory"),
        (["library"], "list|show|get|add"),
    ],
)
def test_bad_arguments_get_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1


@pytest.mark.slow
def test_a_library_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "library", "init", "--path", "mine") == "mine is a library of 0 families\n"
    mine = ["library", "--path", "mine"]
    said(capsys, "generate", "cnn", "--stages", "8", "--memory", "25%", "-o", "p.json")
    said(capsys, "solve", "p.json", "--method", "greedy", "-o", "c.json")
    refused = said(capsys, *mine, "add", "c.json", code=2)
    assert "that is not in the library; --new takes it" in refused
    (added,) = said_json(capsys, *mine, "add", "--new", "c.json", "--group", "mine")["improved"]
    assert (added["name"], added["family"], added["group"]) == ("cnn-8-0-m25", "cnn-8-0", "mine")
    assert added["value"] == json.loads(Path("c.json").read_text())["objective"]
    # The same problem at another limit, without a certificate; and again, under another name.
    said(capsys, "generate", "cnn", "--stages", "8", "--memory", "9000", "-o", "q.json")
    line = said(capsys, *mine, "add", "--new", "q.json")
    assert line == "cnn-8-0-9000: value -, bound - (-), UNKNOWN\n"
    renamed = json.loads(Path("q.json").read_text()) | {"name": "another name / of it"}
    Path("q.json").write_text(json.dumps(renamed))
    said(capsys, "solve", "q.json", "--method", "vdnn", "-o", "c.json")
    (improved,) = said_json(capsys, *mine, "add", "c.json")["improved"]
    assert improved["name"] == "cnn-8-0-9000"
    assert improved["value"] is not None
    # The place may come from the environment, and stand behind the action under its old name.
    monkeypatch.setenv("OFFCERT_LIBRARY", "mine")
    for command in (["library", "list"], ["library", "list", "--folder", "mine"]):
        rows = said_json(capsys, *command)["problems"]
        assert [row["name"] for row in rows] == ["cnn-8-0-m25", "cnn-8-0-9000"]
        assert [row["family"] for row in rows] == ["cnn-8-0"] * 2
    arguments = ["compare", "library:cnn-8-0", "--methods", "greedy", "--no-certify"]
    cells = compare._cells(program.parser().parse_args(arguments))
    assert [cell.point.problem.name for cell in cells] == ["cnn-8-0-m25", "cnn-8-0-9000"]
    assert said_json(capsys, "library", "--path", str(FOLDER), "show", "cnn-8-0-m0")["value"]
    # Not the same problem: other numbers under the name of one that is there.
    said(capsys, "generate", "cnn", "--stages", "8", "--seed", "1", "-o", "q.json")
    document = json.loads(Path("q.json").read_text()) | {"name": "cnn-8-0"}
    Path("q.json").write_text(json.dumps(document))
    message = said(capsys, *mine, "add", "--new", "q.json", code=2)
    assert 'the library holds another problem called "cnn-8-0"; rename one of them' in message
    monkeypatch.delenv("OFFCERT_LIBRARY")
    message = said(capsys, "library", "add", "--new", "q.json", code=2)
    assert "new problems need a library of your own: --path FOLDER or $OFFCERT_LIBRARY" in message


def test_people_read_units_and_programs_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    name = "resnet50-224-b32-m0"
    row = said_json(capsys, "library", "list", "--family", "resnet50-224-b32")["problems"][0]
    assert row["name"] == name
    line = said(capsys, "library", "list", "--family", "resnet50-224-b32").splitlines()[0]
    assert f"value {row['value'] / 1e6:9.3f} ms  bound " in line
    assert f"memory {row['memory'] / 2**20:.2f} MiB" in line or " GiB " in line
    assert f"  value          {row['value'] / 1e6:.3f} ms by " in said(
        capsys, "library", "show", name
    )
    line = said(capsys, "library", "list", "--family", "three-partition-4-100-yes").splitlines()[0]
    assert " value          800  bound          800  OPTIMAL   proved" in line


def test_problems_with_recomputation_are_generated_and_a_half_is_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from offcert.instances.two_partition import strategy_of_part
    from support.problems.joint_certificates import certificate_of

    path = tmp_path / "half.json"
    command = ["generate", "recompute-partition", "--values", "3,5,4,2", "-o", str(path)]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "  may be done    recomputation of anything\n" in text
    assert "  answer         yes: a schedule of length 21 exists" in text
    certificate = certificate_of(read_problem(path), strategy_of_part([3, 5, 4, 2], [0, 2]))
    certificate.write(tmp_path / "certificate.json")
    assert main(["partition", str(tmp_path / "certificate.json")]) == 0
    assert capsys.readouterr().out == "3 + 4\n5 + 2\n"
    longer = certificate_of(read_problem(path), strategy_of_part([3, 5, 4, 2], [1]))
    longer.write(tmp_path / "certificate.json")
    assert main(["partition", str(tmp_path / "certificate.json")]) == 2
    assert "only a schedule of length 21 holds a half" in capsys.readouterr().err
    for kind in ("checkpoint-chain", "recompute-network"):
        assert main(["generate", kind, "--recompute", "any", "--no-offload", "-o", str(path)]) == 0
        assert "recomputation of anything\n" in capsys.readouterr().out
