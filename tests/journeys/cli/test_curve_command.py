"""`offcert certify` with several limits, and the choices beside the limit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offcert.cli import arguments as choices
from offcert.cli import main
from offcert.core.units import Units
from offcert.instances.cnn import cnn_chain
from offcert.proofs.certificate import read_certificate
from offcert.questions.schedule.files import problem_from_json, read_problem, write_problem
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from support.problems.joint_certificates import chain_problem


@pytest.fixture
def chain_file(tmp_path: Path) -> str:
    write_problem(tmp_path / "chain.json", replace(chain_problem(), units=Units("ns", "B")))
    return str(tmp_path / "chain.json")


@pytest.fixture
def trace_file(tmp_path: Path) -> str:
    problem = cnn_chain(4, 1)
    trace = replace(problem, network=problem.trace)
    write_problem(tmp_path / "trace.json", trace.with_memory("50%"))
    return str(tmp_path / "trace.json")


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


def test_a_curve_leaves_certificates_table_and_picture(
    chain_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "curve"
    command = ["certify", chain_file, "--recompute", "none", "--memory", "0%:100%:50%"]
    options = ["--time-limit", "5", "--workers", "1", "-o", str(folder)]
    found = run_json(capsys, *command, *options)
    problem = replace(chain_problem(), recompute=Recompute.NONE)
    limits = [problem.least_memory, problem.memory_at(problem.platform.bandwidth / 4), 41]
    assert [row["memory"] for row in found["limits"]] == limits
    assert [row["makespan"] for row in found["limits"]] == [32, 24, 20]
    assert [row["saved_by_next"] for row in found["limits"]] == [8, 4, None]
    for memory, row in zip(limits, found["limits"], strict=True):
        certificate = read_certificate(folder / f"memory-{memory}.json")
        assert certificate.result.objective == row["makespan"]
        assert certificate.problem.recompute is Recompute.NONE
    assert json.loads((folder / "curve.json").read_text())["limits"] == found["limits"]
    table = (folder / "curve.md").read_text()
    assert "offloading; computing takes 20 ns" in table
    assert (folder / "curve.svg").read_text().startswith("<?xml")
    # What is there is taken, and what is not there is added.
    stamps = {path.name: path.stat().st_mtime_ns for path in folder.glob("memory-*.json")}
    seen = (folder / f"memory-{limits[0]}.json").read_bytes()
    more = run_json(capsys, *command[:-1], "0%:100%:25%", *options)
    assert len(more["limits"]) == 5
    assert set(stamps) < {path.name for path in folder.glob("memory-*.json")}
    assert (folder / f"memory-{limits[0]}.json").read_bytes() == seen


def test_other_settings_search_again(
    chain_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "curve"
    command = ["certify", chain_file, "--recompute", "none", "--memory", "30B,41B"]
    for seed in ("0", "7"):
        run_json(capsys, *command, "--time-limit", "5", "--seed", seed, "-o", str(folder))
        assert read_certificate(folder / "memory-30.json").settings.seed == int(seed)


def test_a_curve_without_a_folder_is_only_said(
    chain_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["certify", chain_file, "--recompute", "none", "--memory", "41B:49B:4B"]
    assert main([*command, "--time-limit", "5"]) == 0
    text = capsys.readouterr().out
    assert "| memory |" in text
    assert text.count("1.000") == 3


def test_a_curve_needs_a_folder_not_a_file(
    chain_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there.json"
    there.write_text("{}")
    assert main(["certify", chain_file, "--memory", "0:100:50", "-o", str(there)]) == 2
    assert "several limits need a folder" in capsys.readouterr().err
    assert there.read_text() == "{}"


def solved(capsys: pytest.CaptureFixture[str], *arguments: str) -> Problem:
    """Return the problem that a command works on."""
    assert main(["certify", *arguments, "--time-limit", "1", "--target-gap", "0.9"]) == 0
    path = arguments[arguments.index("-o") + 1]
    capsys.readouterr()
    return read_certificate(path).problem


def test_choices_of_the_file_hold_until_the_command_says_otherwise(
    chain_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("-o", str(tmp_path / "c.json"))
    assert solved(capsys, chain_file, *out) == read_problem(chain_file)
    other = solved(capsys, chain_file, *out, "--recompute", "chain", "--offload", "no")
    assert (other.recompute, other.offload) == (Recompute.CHAIN, False)
    least = solved(capsys, chain_file, *out, "--minimise", "memory", "--overhead", "22.5%")
    assert (least.minimise, least.deadline) == (Minimise.MEMORY, 24)
    timed = solved(capsys, chain_file, *out, "--minimise", "memory", "--deadline", "30ns")
    assert timed.deadline == 30
    write_problem(chain_file, timed)
    again = solved(capsys, chain_file, *out)
    assert (again.minimise, again.deadline) == (Minimise.MEMORY, 30)
    back = solved(capsys, chain_file, *out, "--minimise", "time", "--memory", "100%")
    assert (back.minimise, back.deadline) == (Minimise.TIME, None)


def test_percentages_of_recomputation_begin_at_the_largest_computation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = chain_problem()
    assert problem.computed is not None
    assert problem.memory_at(problem.platform.bandwidth * 0) == max(problem.computed.own_memory)
    path = str(tmp_path / "p.json")
    write_problem(path, problem)
    least = solved(capsys, path, "--memory", "0%", "-o", str(tmp_path / "c.json"))
    assert least.platform.memory == max(problem.computed.own_memory)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recompute", "any"], 'recompute "any" needs a network that says what is computed'),
        (["--recompute", "chain"], 'recompute "chain" needs a network'),
        (["--deadline", "3"], "--deadline is for --minimise memory alone"),
        (["--overhead", "20%"], "--overhead is for --minimise memory alone"),
        (["--minimise", "memory", "--overhead", "20"], 'overhead must look like "20%", not "20"'),
        (["--minimise", "memory", "--deadline", "3ms"], 'deadline "3ms" needs no unit'),
        (["--minimise", "memory", "--deadline", "soon"], 'deadline must look like "80ms"'),
        (["--minimise", "memory", "--memory", "5%"], "--memory is for --minimise time"),
        (["--minimise", "memory", "--device-memory", "1GiB"], "--device-memory is for --minimise"),
        (["--minimise", "memory", "--memory", "5%:9%:1%"], "needs time as the objective"),
        (["--memory", "5%:1%:1%"], "must go up in steps of more than 0"),
        (["--memory", "1GiB:9%:1GiB"], 'memory must be a range such as "0:100:5"'),
    ],
)
def test_choices_that_do_not_fit_get_one_sentence(
    arguments: list[str], message: str, trace_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", trace_file, *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def test_networks_are_no_chains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = chain_problem()
    network = problem.computed
    assert network is not None
    write_problem(tmp_path / "net.json", replace(problem, network=network))
    assert main(["certify", str(tmp_path / "net.json"), "--recompute", "chain"]) == 2
    assert "needs a chain, not a network" in capsys.readouterr().err


def test_what_the_help_repeats_of_the_core_is_what_it_says() -> None:
    assert tuple(map(str, Recompute)) == choices.RECOMPUTE
    assert tuple(map(str, Minimise)) == choices.MINIMISE


def test_methods_refuse_what_they_are_not_for(
    chain_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for method, options, message in (
        ("greedy", ["--offload", "no"], "method greedy is for recompute none, not any"),
        ("offload-alone", ["--recompute", "none"], "is for recompute chain or any, not none"),
        (
            "greedy",
            ["--recompute", "none", "--minimise", "memory"],
            "method greedy minimises time, not memory",
        ),
    ):
        assert main(["solve", chain_file, "--method", method, *options]) == 2
        assert message in capsys.readouterr().err
    command = ["solve", chain_file, "--method", "offload-alone", "--memory", "50%"]
    found = run_json(capsys, *command, "--time-limit", "5")
    assert (found["objective"], found["execution"]["again"]) == (24, 0)
    assert isinstance(problem_from_json(json.loads(Path(chain_file).read_text())), Problem)


def test_curves_of_several_folders_make_one_picture(
    chain_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for name, options in (("a", ["--recompute", "none"]), ("b", [])):
        folders.append(str(tmp_path / name))
        command = ["certify", chain_file, *options, "--memory", "30B,41B", "--time-limit", "2"]
        assert main([*command, "-o", folders[-1]]) == 0
    target = tmp_path / "curves.svg"
    assert main(["plot", *folders, "-o", str(target)]) == 0
    text = target.read_text()
    assert "offloading and recomputation" in text
    assert text.count("<circle") == 4
    assert main(["plot", folders[0], folders[0], "-o", str(target)]) == 0
    capsys.readouterr()
    for arguments, message in (
        ([*folders, "-o", str(tmp_path / "x.pdf")], "must end in .png or .svg"),
        ([str(tmp_path), "-o", str(target)], "is no folder with a curve over memory"),
        ([folders[0]] * 5 + ["-o", str(target)], "a picture holds at most 4 curves, not 5"),
        ([chain_file, chain_file, "-o", str(target)], "a picture shows one certificate, not 2"),
    ):
        assert main(["plot", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_compare_takes_means_and_refuses_what_means_nothing(
    chain_file: str, trace_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = str(tmp_path / "table.json")
    command = ["compare", chain_file, "--methods", "certify", "--memory", "30B", "--jobs", "1"]
    allow = ["--allow", "offload,both", "--recompute", "chain"]
    assert main([*command, *allow, "--time-limit", "1", "-o", table]) == 0
    rows = json.loads(Path(table).read_text())["rows"]
    assert sorted((row["recompute"] or "", row["offload"] or "") for row in rows) == [
        ("", ""),
        ("chain", "yes"),
    ]
    capsys.readouterr()
    for arguments, message in (
        ([*command, "--recompute", "any"], "--recompute says what --allow means"),
        ([*command, "--allow", "swap"], 'allow must be of offload, recompute, both, not "swap"'),
        (["compare", trace_file, "--methods", "certify", "--allow", "both"], "is a trace, which"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_methods_for_chains_say_so_and_what_is_not_found_is_said(
    chain_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = chain_problem()
    network = problem.computed
    assert network is not None
    write_problem(tmp_path / "net.json", replace(problem, network=network))
    command = ["solve", str(tmp_path / "net.json"), "--method", "checkpoints"]
    assert main(command) == 2
    assert "method checkpoints needs a chain, not a network" in capsys.readouterr().err
    least = ["solve", chain_file, "--method", "checkpoints", "--minimise", "memory"]
    found = run_json(capsys, *least, "--overhead", "40%")
    assert found["objective"] < problem.peak_memory
    assert problem.trace.compute_time <= found["makespan"] <= 28
    assert main([*least, "--deadline", "3ns"]) == 0
    said = capsys.readouterr().out
    assert "INFEASIBLE" in said
    assert "17 ns too long" in said
    short = ["solve", chain_file, "--method", "checkpoints", "--memory", "0%"]
    assert main(short) == 0
    assert "  no schedule  is known\n" in capsys.readouterr().out
    assert main(["methods", "--recompute", "any"]) == 0
    text = capsys.readouterr().out
    assert "checkpoints: " in text
    assert "recompute chain or any, least time or memory" in text
    assert "greedy: " not in text
