"""`offcert train` on devices: reports, traces and pictures, and the host's memory as a limit."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from offcert.certification.methods import solve
from offcert.cli import main
from offcert.questions.schedule.training_files import read_training


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    from offcert.runtime.profiling.profile import profile

    problem = profile("gpt-tiny", "2x8", hardware="t4")
    path = tmp_path_factory.mktemp("train") / "c.json"
    solve(problem.with_memory(problem.trace.least_memory), "sequential").write(path)
    return str(path)


def test_report_trace_and_picture_of_a_simulated_device(
    certificate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", certificate, "--device", "simulated", "--steps", "1"]
    assert main([*command, "--report", "r.json", "--trace", "t.json"]) == 0
    said = capsys.readouterr()
    record = read_training("r.json")
    assert record.measured is not None
    assert record.measured.schedule == record.planned.schedule
    assert {value for name, value in record.errors().items() if "certified" not in name} == {0}
    assert said.err.startswith("offcert: host buffer ")
    assert said.err.count("\n") == 1
    lines = said.out.splitlines()
    # The certificate's step moves at other moments than events allow; the forecast does not.
    (step,) = (line for line in lines if line.startswith("  a step on device simulated: "))
    certified, forecast, executed = (part.split(" ", 1) for part in step.split(": ")[1].split(", "))
    assert (certified[0], forecast[0], executed[0]) == ("certified", "forecast", "executed")
    assert forecast[1] == executed[1]
    beyond = 100 * (record.planned.schedule.makespan / (record.certified or 1) - 1)
    times = f"time to the certificate {beyond:+.2f} %, time to the forecast +0.00 %"
    errors = f"{times}, peak +0.00 %, 0 B late, 0 B not freed, 0 B outside of the host buffer"
    assert f"  errors: {errors}" in lines
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "operation"]
    assert names == [*record.operations] * 2
    assert main(["plot", "r.json", "-o", "r.svg"]) == 0
    assert ElementTree.parse("r.svg").getroot().tag.endswith("svg")
    document = json.loads(Path("r.json").read_text())
    Path("r.json").write_text(json.dumps(document | {"errors": {}}))
    capsys.readouterr()
    assert main(["plot", "r.json", "-o", "again.svg"]) == 2
    assert "r.json: errors must be" in capsys.readouterr().err
    assert main(["plot", "r.json", "--addresses", "-o", "again.svg"]) == 2
    assert "which has no addresses to draw" in capsys.readouterr().err
    assert not Path("again.svg").exists()


def test_a_plan_that_needs_more_of_the_host_is_refused_with_the_numbers(
    certificate: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    report = tmp_path / "r.json"
    command = ["train", certificate, "--steps", "1", "--report", str(report)]
    assert main([*command, "--host-memory", "1KiB"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "of host memory (" in line
    assert "but may have 1.00 KiB (1024)" in line
    assert not report.exists()
    limit = ["--host-memory", "1KiB", "--host-spill", str(tmp_path)]
    assert main([*command, *limit, "--json"]) == 0
    said = capsys.readouterr()
    host = read_training(report).host
    assert json.loads(said.out)["host"] == {
        "pool": host.pool,
        "load": host.load,
        "limit": 1024,
        "spilled": host.spilled,
        "staging": host.staging,
    }
    assert host.held <= 1024 < host.pool
    assert "of it in a file" in said.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host-spill"], "--host-spill needs --host-memory"),
        (["--host-memory", "8"], 'host-memory: "8" needs a unit'),
        (["--device", "tpu"], "must be one of auto, cpu, simulated, cuda"),
        (["second.json", "--report", "r.json"], "second.json"),
        (["--trace", "/dev/null/t.json"], "/dev/null"),
    ],
)
def test_bad_options_get_one_line(
    options: list[str],
    message: str,
    certificate: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["train", certificate, *options])
    except SystemExit as end:
        code = end.code
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []
