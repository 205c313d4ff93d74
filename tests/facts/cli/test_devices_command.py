"""The command `devices`, and `verify` of what it writes."""

import json
from pathlib import Path

import pytest

from offcert.cli import main
from offcert.heuristics.devices import RULES
from offcert.proofs.devices_certificate import DevicesCertificate
from offcert.questions.devices.problem import read_devices_problem, write_devices_problem
from support.problems.devices import three_layers


def test_a_step_is_certified_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "problem.json", tmp_path / "certificate.json"
    write_devices_problem(source, three_layers())
    assert main(["devices", str(source), "-o", str(target), "--time-limit", "1"]) == 0
    said = capsys.readouterr().out
    assert "OPTIMAL" in said
    assert "34" in said
    assert main(["verify", str(target)]) == 0
    assert capsys.readouterr().out.startswith("VALID: OPTIMAL: 34")
    assert main(["verify", str(target), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["valid"], document["objective"], document["evidence"]) == (True, 34, "proved")
    assert main(["train", str(target)]) == 2
    assert capsys.readouterr().err == (
        f"offcert: {target} certifies a schedule for several devices, "
        "but training follows a schedule for one device\n"
    )
    for command, page in (("plot", "plan.svg"), ("report", "page.html")):
        assert main([command, str(target), "-o", str(tmp_path / page)]) == 2
        assert capsys.readouterr().err == (
            f"offcert: {target}: it is a certificate of a schedule for several devices, not of a "
            "schedule: `offcert verify` shows it\n"
        )
    forged = json.loads(target.read_text())
    forged["schedule"]["jobs"][0]["start"] -= 1
    target.write_text(json.dumps(forged))
    assert main(["verify", str(target)]) == 1
    assert "INVALID" in capsys.readouterr().out


def test_options_change_the_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, changed = tmp_path / "problem.json", tmp_path / "changed.json"
    write_devices_problem(source, three_layers())
    options = ["--devices", "3", "--place", "device", "--rate", "5", "--memory", "100%"]
    options += ["--problem-output", str(changed), "--rule", "fifo", "--json", "--time-limit", "1"]
    assert main(["devices", str(source), *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["devices"], document["place"], document["found_by"]) == (3, "device", "fifo")
    problem = read_devices_problem(changed)
    assert (problem.devices, problem.accumulation.rate) == (3, 5)


def test_networks_of_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "problem.json", tmp_path / "certificate.json"
    choices = ["--devices", "2", "--sub-batches", "64"]
    assert main(["generate", "modnn", "resnet34", *choices, "-o", str(source)]) == 0
    arguments = ["devices", str(source), "--rule", "fifo"]
    assert main([*arguments, "-o", str(target), "--time-limit", "2"]) == 0
    certificate = DevicesCertificate.read(target)
    step = certificate.problem.step
    # Two rounds of 64 images, the gradients of the second one.
    assert min(each.ready for each in certificate.problem.gradients) > len(step.trace) / 2
    weights = step.trace.tensors[0]
    assert 2 * sum(each.size for each in certificate.problem.gradients) == weights.size
    assert certificate.gap < 0.01
    assert main(["verify", str(target)]) == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["devices", "nothing.json"], "cannot be read"),
        (["generate", "modnn", "alexnet", "-o", "p.json"], "network must be one of"),
        (["generate", "modnn", "vgg16", "--devices", "3", "-o", "p.json"], "divided equally"),
        (["generate", "modnn", "fcn", "--devices", "2", "--apart", "-o", "p.json"], "weights stay"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert reason in capsys.readouterr().err


def test_an_interrupt_writes_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "problem.json", tmp_path / "certificate.json"
    write_devices_problem(source, three_layers())
    kept = []

    def interrupt(*_: object, **__: object) -> None:
        kept.append(DevicesCertificate.read(target))
        raise KeyboardInterrupt

    monkeypatch.setattr("offcert.certification.devices.devices_bounds", interrupt)
    arguments = ["devices", str(source), "-o", str(target), "--time-limit", "1", "-v"]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert "bound 18 best - rules" in said.err
    assert "bound 18 best 34 gap 47.0588 % rules" in said.err
    assert kept[0].objective == DevicesCertificate.read(target).objective == 34
    assert main(["verify", str(target)]) == 0


def test_files_that_cannot_be_written_are_said_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "problem.json"
    write_devices_problem(source, three_layers())
    for option in ("-o", "--problem-output"):
        assert main(["devices", str(source), option, "/dev/null/c.json"]) == 2
        assert "/dev/null is no folder" in capsys.readouterr().err


def test_every_rule_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["devices", "--help"])
    assert "{" + ",".join(RULES) + "}" in "".join(capsys.readouterr().out.split())
