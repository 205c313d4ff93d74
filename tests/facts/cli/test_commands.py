"""The commands, called as the console script calls them."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert.cli import main
from offcert.core.chain import Chain
from offcert.core.platform import Kind, Platform
from offcert.core.units import Units
from offcert.proofs.certificate import read_certificate
from offcert.questions.schedule.files import problem_to_json, read_problem, write_problem
from offcert.questions.schedule.problem import Problem


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    chain = Chain(
        [30, 60, 20, 50, 40, 10],
        [60, 90, 50, 80, 80, 20],
        [9, 14, 8, 12, 6, 3, 1],
        [9, 14, 8, 12, 6, 3, 1],
    )
    problem = Problem("p", chain, Platform(50, Fraction(1, 4)), units=Units("ns", "B"))
    write_problem(tmp_path / "problem.json", problem)
    return tmp_path / "problem.json"


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


def test_certify_verify_and_plot(
    problem_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "certificate.json")
    found = run_json(capsys, "certify", str(problem_file), "--memory", "0%", "-o", path)
    assert found["status"] == "OPTIMAL"
    assert found["objective"] == found["lower_bound"]
    assert found["gap"] == 0
    assert found["offloaded"]
    assert {"method", "value", "evidence"} <= found["bounds"][0].keys()
    assert found["runtime"] > 0

    checked = run_json(capsys, "verify", path)
    assert checked["valid"]
    assert checked["evidence"] == "proved"
    assert main(["verify", path]) == 0
    assert "VALID: OPTIMAL" in capsys.readouterr().out

    for name, magic in (("plan.png", b"\x89PNG"), ("plan.svg", b"<?xml")):
        assert main(["plot", path, "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_tampered_certificate_exits_with_1_and_every_reason(
    problem_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.json"
    main(["solve", str(problem_file), "--method", "greedy", "--memory", "0%", "-o", str(path)])
    document = json.loads(path.read_text())
    document["objective"] += 1
    path.write_text(json.dumps(document))
    capsys.readouterr()
    checked = run_json(capsys, "verify", str(path), code=1)
    assert [fault.split(":")[0] for fault in checked["faults"]] == ["objective", "digest"]
    assert main(["verify", str(path)]) == 1
    assert "INVALID" in capsys.readouterr().out


def test_memory_and_bandwidth_are_taken_from_the_command(
    problem_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "c.json")
    arguments = ["solve", str(problem_file), "--method", "bounds", "-o", path]
    run_json(capsys, *arguments, "--memory", "64B", "--bandwidth", "0.5GB/s")
    platform = read_certificate(path).problem.platform
    assert (platform.memory, platform.bandwidth) == (64, Fraction(1, 2))
    half = run_json(capsys, *arguments, "--memory", "50%")["memory"]
    trace = read_problem(problem_file).trace
    assert half == trace.least_memory + (trace.peak_memory - trace.least_memory) // 2


def test_the_directions_of_the_link_may_get_different_rates(
    problem_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "c.json")
    arguments = ["solve", str(problem_file), "--method", "bounds", "-o", path]
    of_file = read_problem(problem_file).platform.bandwidth
    for options, rates in (
        (["--prefetch-bandwidth", "0.25GB/s"], (of_file, Fraction(1, 4))),
        (["--bandwidth", "3/2"], (Fraction(3, 2), Fraction(3, 2))),
        (["--bandwidth", "3/2", "--prefetch-bandwidth", "5/2"], (Fraction(3, 2), Fraction(5, 2))),
    ):
        run_json(capsys, *arguments, *options)
        platform = read_certificate(path).problem.platform
        assert (platform.rate(Kind.OFFLOAD), platform.rate(Kind.PREFETCH)) == rates
    document = read_certificate(path).to_json()["problem"]
    problem_file.write_text(json.dumps(document))
    run_json(capsys, *arguments, "--bandwidth", "3/2")
    assert "prefetch_bandwidth" not in json.loads(Path(path).read_text())["problem"]


def test_infeasible_memory_is_a_result(
    problem_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    least = read_problem(problem_file).trace.least_memory
    found = run_json(capsys, "certify", str(problem_file), "--memory", f"{least - 2}B")
    assert found["status"] == "INFEASIBLE"
    assert found["gap"] is None
    assert found["objective"] is None
    assert found["infeasibility"]["lacking"] == 2
    assert main(["certify", str(problem_file), "--memory", f"{least - 2}B"]) == 0
    assert "2 B more than there is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["certify", "missing.json"], "missing.json cannot be read"),
        (["certify", "PROBLEM", "--memory", "lots"], 'memory must look like "40%"'),
        (["certify", "PROBLEM", "--memory", "200%"], "memory must be at most 100%, the peak"),
        (["certify", "PROBLEM", "--bandwidth", "fast"], 'bandwidth must look like "12.2GB/s"'),
        (
            ["certify", "PROBLEM", "--prefetch-bandwidth", "0"],
            'prefetch bandwidth must be more than 0, not "0"',
        ),
        (["solve", "PROBLEM", "--method", "magic"], "method must be one of"),
        (["verify", "PROBLEM"], 'format must be "offcert-certificate"'),
        (["plot", "PROBLEM", "-o", "x.pdf"], "format must be"),
        (["certify", "PROBLEM", "-o", "/dev/null/c.json"], "cannot be written"),
        pytest.param(
            ["profile", "no-such-net", "--input", "1x3x32x32", "-o", "p.json"],
            "no-such-net",
            marks=pytest.mark.slow,
        ),
        (["profile", "resnet18", "--input", "1xx", "-o", "p.json"], "1xx"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(
    arguments: list[str],
    message: str,
    problem_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    arguments = [str(problem_file) if word == "PROBLEM" else word for word in arguments]
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "option",
    [
        ("--time-limit", "0"),
        ("--time-limit", "soon"),
        ("--workers", "0"),
        ("--target-gap", "1"),
        ("--seed", "x"),
        ("--seed", "-1"),
        ("--transfers", "atomc"),
    ],
)
def test_bad_options_get_one_line_and_exit_code_2(
    option: tuple[str, str], problem_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["certify", str(problem_file), *option])
    assert caught.value.code == 2
    errors = capsys.readouterr().err
    assert option[0] in errors
    assert errors.count("\n") == 1


def test_a_result_never_replaces_a_device_or_a_link(tmp_path: Path, problem_file: Path) -> None:
    import os

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = ["solve", str(problem_file), "--method", "bounds", "-o"]
    assert main([*command, str(pipe)]) == 2
    assert pipe.is_fifo()
    link, target = tmp_path / "link.json", tmp_path / "target.json"
    target.write_text("old")
    link.symlink_to(target)
    assert main([*command, str(link)]) == 0
    assert link.is_symlink()
    assert "offcert-certificate" in target.read_text()


def test_an_interrupt_outside_of_a_search_is_one_line(
    problem_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("offcert.verification.document.verify_file", interrupt)
    assert main(["verify", str(problem_file)]) == 130
    assert capsys.readouterr().err == "offcert: interrupted\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", 5), ("options", [1]), ("loss", []), ("seed", None), ("input", [2.5, 3])],
)
def test_a_malformed_source_is_named(
    field: str,
    value: object,
    problem_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = {"model": "resnet18", "input": [2, 3, 64, 64]} | {field: value}
    document = problem_to_json(read_problem(problem_file)) | {"source": source}
    problem_file.write_text(json.dumps(document))
    path = str(tmp_path / "c.json")
    assert main(["solve", str(problem_file), "--method", "sequential", "-o", path]) == 0
    capsys.readouterr()
    assert main(["train", path]) == 2
    errors = capsys.readouterr().err
    assert f"source.{field}" in errors
    assert errors.count("\n") == 1


def test_a_plan_of_what_was_drawn_has_nothing_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, path = str(tmp_path / "p.json"), str(tmp_path / "c.json")
    assert main(["generate", "cnn", "--stages", "4", "-o", problem]) == 0
    assert main(["solve", problem, "--method", "sequential", "-o", path]) == 0
    capsys.readouterr()
    assert main(["train", path]) == 2
    assert capsys.readouterr().err == (
        "offcert: this problem was not made of a network, so there is nothing to run: `offcert "
        "profile` makes one that can be trained\n"
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("memory", None, "memory must be an integer"),
        ("memory", -1, "memory must be at least 0, not -1"),
        ("version", 2, "version 2 of offcert-problem is not known"),
        ("bandwidth", "0/1", "bandwidth must be more than 0"),
        ("prefetch_bandwidth", "0/1", "prefetch_bandwidth must be more than 0"),
    ],
)
def test_a_bad_problem_file_gets_one_sentence(
    field: str,
    value: object,
    message: str,
    problem_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = problem_to_json(read_problem(problem_file)) | {field: value}
    problem_file.write_text(json.dumps(document))
    assert main(["certify", str(problem_file)]) == 2
    assert message in capsys.readouterr().err


def test_nan_in_a_file_is_refused(problem_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = problem_file.read_text().replace('"memory": 50', '"memory": NaN')
    problem_file.write_text(text)
    assert main(["certify", str(problem_file)]) == 2
    assert "NaN" in capsys.readouterr().err


@pytest.mark.slow
def test_a_network_from_profile_to_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, certificate = str(tmp_path / "p.json"), str(tmp_path / "c.json")
    profile = ["profile", "resnet18", "--input", "2x3x32x32", "--memory", "25%", "-o", problem]
    summary = run_json(capsys, *profile)
    assert summary["least_memory"] < summary["peak_memory"]
    run_json(capsys, "certify", problem, "--memory", "25%", "--time-limit", "20", "-o", certificate)
    report = run_json(capsys, "train", certificate, "--steps", "1")
    # A percentage is the same bytes for all commands, and in Python.
    limit = read_problem(problem).with_memory("25%").platform.memory
    assert report["limit"] == summary["memory"] == limit
    assert report["ok"]
    assert report["bitwise_equal"]
    assert report["follows_prediction"]
    assert report["steps"][0]["offloaded_bytes"] > 0
    assert report["peak"] <= report["limit"] < report["unplanned_peak"]


def test_transfers_in_pieces_are_solved_verified_drawn_and_not_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = Chain([3, 6, 2], [6, 9, 5], [9, 14, 8, 3], [9, 14, 8, 3])
    problem = Problem("p", chain, Platform(0, Fraction(7, 3)))
    source, path = tmp_path / "problem.json", str(tmp_path / "certificate.json")
    write_problem(source, problem.with_memory(problem.trace.least_memory))
    arguments = ["solve", str(source), "--method", "fluid-exact", "-o", path, "--transfers"]
    found = run_json(capsys, *arguments, "interruptible")
    assert found["objective"] == found["lower_bound"]
    with pytest.raises(SystemExit):
        main([*arguments, "liquid"])
    assert "argument --transfers: must be one of atomic, " in capsys.readouterr().err
    assert "pieces" in json.loads(Path(path).read_text())["schedule"]
    assert run_json(capsys, "verify", path)["valid"]
    assert main(["plot", path, "-o", str(tmp_path / "plan.svg")]) == 0
    capsys.readouterr()
    assert main(["train", path]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "moves tensors in pieces" in message


@pytest.mark.slow
def test_what_a_solver_prints_does_not_mix_with_the_result(problem_file: Path) -> None:
    code = (
        "import ctypes, sys\n"
        "from offcert.certification import methods\n"
        "from offcert.cli import main\n"
        "def shout(search, effort): ctypes.CDLL(None).puts(b'noise')\n"
        "methods.METHODS['loud'] = methods.Method(shout, 'prints')\n"
        f"sys.exit(main(['solve', {str(problem_file)!r}, '--method', 'loud', '--json']))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["lower_bound"] > 0
    assert run.stderr == "noise\n"
