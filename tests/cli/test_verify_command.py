"""`offcert verify`: its three outcomes, and what a person and a program read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from offcert.cli import main
from offcert.core.files import write_problem
from offcert.core.problem import Units
from offcert.instances.library import load


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A certificate whose best bound takes a search to verify."""
    made = replace(load("cnn-12-1-m10"), units=Units("ns", "B"))
    folder = tmp_path_factory.mktemp("verify")
    write_problem(folder / "p.json", made)
    path = str(folder / "c.json")
    assert main(["solve", str(folder / "p.json"), "--method", "pivot", "-o", path]) == 0
    return path


def test_times_are_read_with_their_units(
    certificate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", certificate]) == 0
    text = capsys.readouterr().out
    value = json.loads(Path(certificate).read_text())["objective"]
    assert text.splitlines()[:2] == [
        "VALID: OPTIMAL",
        f"  makespan {value / 1000:.3f} µs, lower bound {value / 1000:.3f} µs (proved)",
    ]
    assert f"  bound {value / 1000:>11.3f} µs  pivot: proved, " in text


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (["--max-size", "100B"], "but only 100 may be read"),
        (["--time-limit", "0.000000001"], "seconds are over"),
        (["--memory-limit", "1kB"], "1000 bytes are too few for a search"),
    ],
)
def test_what_takes_more_than_the_limits_allow_is_neither_valid_nor_invalid(
    certificate: str, limits: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", certificate, *limits]) == 3
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "NOT VERIFIED within the limits"
    assert reason in others[0]
    assert main(["verify", certificate, *limits, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "not verified within the limits"
    assert (document["valid"], document["faults"]) == (False, [])
    assert reason in document["unverified"][0]


def test_too_little_memory_is_no_traceback(
    certificate: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("offcert.verify.document.verify_file", fail)
    assert main(["verify", certificate]) == 3
    assert capsys.readouterr().out.splitlines()[1] == "  it takes more memory than there is"


def test_a_fault_outweighs_what_the_limits_leave_open(
    certificate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(Path(certificate).read_text())
    document["objective"] += 1
    path = tmp_path / "c.json"
    path.write_text(json.dumps(document))
    assert main(["verify", str(path), "--memory-limit", "1kB"]) == 1
    assert capsys.readouterr().out.startswith("INVALID\n")
