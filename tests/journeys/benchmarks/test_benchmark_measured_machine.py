"""What an H200 did is between what is proved and what is foreseen by the rates of its link."""

import importlib
import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from offcert.certification.ladder import certify
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.questions.schedule.problem import Problem
from support.docs.docs_pages import ROOT

# Bytes a second to the host and back, of two measurements of one H200; and what a step of ResNet-50
# took whose tensors move only, 10.33 GB each way, 7.2 ms of its operations beside no transfer.
LINKS = (
    {
        "alone": [54264991655, 52853610897],
        "together": [50730593386, 45855926181],
        "computing": [51066598485, 42978829798],
    },
    {
        "alone": [54986352731, 55080947628],
        "together": [51707480645, 42700982438],
        "computing": [51072194824, 47077289155],
    },
)
MOVED, BEFORE, AFTER, MEASURED_MS = 10_327_494_656, 2_083_040, 5_119_776, 384.685


@pytest.fixture(name="measured_machine")
def _measured_machine(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("measured_machine")


def _resnet() -> Problem:
    """Return a step of eight tensors that all have to leave and return, as ResNet-50's do."""
    count = 8
    size = MOVED // count
    operations = [Operation(f"F{i}", BEFORE) for i in range(count)]
    operations += [Operation("loss", 10**6, count * size)]
    operations += [Operation(f"B{i}", AFTER) for i in reversed(range(count))]
    last = len(operations) - 1
    tensors = [Tensor(f"x{i}", size, (i, last - i)) for i in range(count)]
    old = [Fraction(rate, 10**9) for rate in LINKS[0]["computing"]]
    platform = Platform(count * size, old[0], Link.DUPLEX, old[1])
    source = {"measurement": {"link": LINKS[0]}}
    trace = Trace(operations, tensors)
    return Problem("resnet", trace, platform, units=Units("ns", "B"), source=source)


def test_the_best_of_all_readings_alone_and_its_own_at_once(measured_machine: ModuleType) -> None:
    readings = [measured_machine.reading_of({"measurement": {"link": link}}) for link in LINKS]
    platform = measured_machine.on_measured_link(_resnet().platform, readings[0], readings)
    alone = [int(platform.rate(kind) * 10**9) for kind in Kind]
    assert alone == LINKS[1]["alone"]
    assert [int(platform.rate(kind, busy=True) * 10**9) for kind in Kind] == LINKS[0]["computing"]


def test_what_was_measured_is_bracketed(
    measured_machine: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = _resnet()
    certificate = certify(problem, time_limit=5)
    certificate.write(tmp_path / "moving.json")
    other = replace(
        certificate, problem=replace(problem, source={"measurement": {"link": LINKS[1]}})
    )
    other.write(tmp_path / "other.json")
    rows = [{"way": name, "ms": MEASURED_MS} for name in ("moving.json", "other.json")]
    measured = {"rows": [{"way": "plain", "ms": 89.13}, *rows]}
    (tmp_path / "measured.json").write_text(json.dumps(measured))
    out = tmp_path / "rows.json"
    command = ["measured_machine.py", str(tmp_path), "--time-limit", "5", "--json", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    measured_machine.main()
    row = json.loads(out.read_text())["rows"][0]
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == row
    # With the rates of both directions at once for all times, what was proved was beaten.
    assert row["was_proved"] > 1.15 * MEASURED_MS
    assert row["bound"] <= row["measured"] <= 1.05 * row["objective"]
    assert row["objective"] <= row["forecast"]
    for said in ("bound", "objective", "forecast"):
        assert abs(row[said] / MEASURED_MS - 1) < 0.02
