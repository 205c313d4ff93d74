"""Bounds as programs and certificates: what the theory pages work out, and what is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.optimize._highspy import _core

import offcert
from offcert.cli import main
from offcert.core.result import Bound, Evidence
from offcert.formulations.joint.bound import JointCuts
from offcert.formulations.joint.room import Grid
from offcert.questions.schedule.files import write_problem
from offcert_lab.checkers.bounds import export_bound
from support.oracles.pbp import proved_of
from support.oracles.vipr import proved_by
from support.problems.running_example import EXAMPLE

# The two examples of docs/theory/joint.md.
KEPT = offcert.Problem(
    "kept",
    offcert.Network(
        [
            offcert.Computation("A", 2, writes=(0,)),
            offcert.Computation("B", 3, reads=(0,), writes=(1,)),
            offcert.Computation("S", 1, workspace=4, repeatable=False),
            offcert.Computation("D", 1, reads=(1,), repeatable=False),
        ],
        [offcert.Value("x", 3), offcert.Value("y", 2)],
    ),
    offcert.Platform(5, Fraction(1)),
    recompute="any",
    offload=False,
)
MOVED = offcert.Problem(
    "moved",
    offcert.Network(
        [
            offcert.Computation("A", 4, writes=(0,)),
            offcert.Computation("B", 6, writes=(1,)),
            offcert.Computation("S", 5, workspace=16, repeatable=False),
            offcert.Computation("D", 17, reads=(0, 1), repeatable=False),
        ],
        [offcert.Value("x", 8), offcert.Value("y", 8)],
    ),
    offcert.Platform(16, Fraction(1)),
    recompute="any",
)


def joint(problem: offcert.Problem, whole: bool = True, branching: bool = False) -> Bound:
    """Return the bound cut at the start of computation 2."""
    network = problem.computed
    assert network is not None
    grid, cuts = Grid(network, (4,), ()), JointCuts(problem, whole=whole)
    bound = cuts.cases(grid, 10) if branching else cuts.cut(grid, 10)
    assert bound is not None
    return bound


def least(model: Path) -> float:
    """Return the optimum of a file, by HiGHS as SciPy has it."""
    solver = _core._Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(model)) == _core.HighsStatus.kOk
    solver.run()
    return float(solver.getObjectiveValue())


@pytest.mark.parametrize(
    ("problem", "whole", "branching", "value", "steps"),
    [
        (KEPT, False, False, 10, 1),
        (KEPT, True, False, 12, 1),
        (MOVED, True, False, 35, 1),
        (MOVED, True, True, 36, 5),
    ],
)
def test_joint_bounds_of_the_theory(
    problem: offcert.Problem, whole: bool, branching: bool, value: int, steps: int
) -> None:
    made = export_bound(problem, [joint(problem, whole, branching)], "vipr")
    assert (made.value, made.derivations) == (value, steps)
    assert proved_by(made.files[".vipr"]) == value


@pytest.mark.parametrize("form", ["mps", "lp"])
@pytest.mark.parametrize(
    ("problem", "every", "value"),
    [
        # The four facts of the page, and all others that this cut has, say 12 and no more.
        (KEPT, False, 12),
        (KEPT, True, 12),
        # Runs again are 0 or 1 in the program: A runs again, or B, or neither.
        (MOVED, True, 36),
    ],
)
def test_programs_have_the_optima_of_the_theory(
    tmp_path: Path, form: str, problem: offcert.Problem, every: bool, value: int
) -> None:
    (model,) = export_bound(problem, [joint(problem)], form, every=every).write(
        tmp_path / f"model.{form}"
    )
    assert least(model) == pytest.approx(value)


def test_a_certificate_on_paper() -> None:
    """The weights of the page; what they leave is 15/2 - 2 times the share of x, at least 0."""
    text = export_bound(KEPT, [joint(KEPT, whole=False)], "vipr").files[".vipr"]
    lines = [line.split() for line in text.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line[0] == "CON")
    end = next(number for number, line in enumerate(lines) if line[0] == "RTP")
    names = [line[0] for line in lines[begin + 1 : end]]
    stated = [name for name in names if not name.startswith("bound")]
    facts = ["available_1_0", "available_1_1", "inputs_1_1_0", "memory_1"]
    assert stated == ["total", "compute_0", "compute_1", *facts]
    variables = [line[0] for line in lines[lines.index(["makespan"]) :]]
    column = str(variables.index("present_1_0"))
    last = lines[-1]
    assert last[1:7] == ["G", "10", "1", "0", "1", "{"]
    weights = dict(zip(last[9:-2:2], map(Fraction, last[10:-2:2]), strict=True))
    by_name = {names[int(number)]: weight for number, weight in weights.items()}
    x = next(line[0] for line in lines if line[1:] == ["G", "0", "1", column, "1"])
    assert by_name.pop(x) == Fraction(11, 2)
    assert by_name == {
        "total": 1,
        "compute_0": 1,
        "compute_1": 1,
        "available_1_0": 2,
        "available_1_1": 5,
        "inputs_1_1_0": 2,
        "memory_1": Fraction(5, 2),
    }


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([], "no proved bound joint-lp can be exported: its bounds are none"),
        (
            [Bound("prop3", 9, Evidence.PROVED, {})],
            "no proved bound .* can be exported: its bounds are prop3",
        ),
        (
            [Bound("joint-stages", 13, Evidence.ATTESTED, {"proof": ""})],
            "no proved bound .* can be exported: its bounds are joint-stages",
        ),
        (
            [Bound("joint-lp", 13, Evidence.PROVED, {"omitted": True})],
            "the proofs of these are not stored with it",
        ),
    ],
)
def test_bounds_that_cannot_be_exported(bounds: list[Bound], message: str) -> None:
    with pytest.raises(offcert.InputError, match=message):
        export_bound(EXAMPLE, bounds, "vipr")


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (EXAMPLE, "nothing is known of what is computed from what"),
        (replace(KEPT, platform=offcert.Platform(6, 1)), "prove [0-9]+, not 12"),
    ],
)
def test_bounds_about_another_problem(problem: offcert.Problem, message: str) -> None:
    with pytest.raises(offcert.InputError, match=message):
        export_bound(problem, [joint(KEPT)], "vipr")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = tmp_path / "certificate.json"
    made = offcert.solve(MOVED, "joint-lp", time_limit=5)
    made.write(certificate)
    value = made.result.lower_bound
    target = tmp_path / "bound.vipr"
    assert main(["export-proof", str(certificate), "--format", "vipr", "-o", str(target)]) == 0
    assert f"moved: joint-lp, {value} ticks" in capsys.readouterr().out
    assert proved_by(target.read_text()) == value
    arguments = ["export-proof", str(certificate), "--format", "lp", "--json"]
    assert main([*arguments, "-o", str(tmp_path / "model.lp")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["bound"], document["value"]) == ("joint-lp", value)
    assert document["derivations"] is None


def test_a_proof_by_counting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_problem(tmp_path / "problem.json", EXAMPLE)
    target = tmp_path / "model.opb"
    arguments = ["export-proof", str(tmp_path / "problem.json"), "--format", "opb", "--json"]
    assert main([*arguments, "--grid", "1", "-o", str(target)]) == 0
    said = json.loads(capsys.readouterr().out)
    proof = target.with_suffix(".pbp")
    assert said["written"] == [str(target), str(proof)]
    cells = proved_of(target.read_text(), proof.read_text())
    assert said["least"] == cells + EXAMPLE.trace.durations[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "vipr", "--grid", "5"], "--grid is for the format opb"),
        (["--format", "opb", "--every-fact"], "--every-fact is about bounds of certificates"),
        (["--format", "vipr"], "no proved bound joint-lp can be exported"),
        (["--format", "mzn"], "must be one of vipr, mps, lp, opb"),
    ],
)
def test_commands_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    certificate = tmp_path / "certificate.json"
    offcert.solve(EXAMPLE, "bounds").write(certificate)
    command = ["export-proof", str(certificate), *arguments, "-o", str(tmp_path / "out.vipr")]
    with suppress(SystemExit):
        assert main(command) == 2
    assert message in capsys.readouterr().err
