"""`make gpu`: that each part ends in time, and what is told of it."""

import importlib
import json
import os
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu")


def test_what_the_tests_said_is_counted(gpu, tmp_path):
    report = tmp_path / "tests.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="fine"/>'
        '<testcase classname="a" name="wrong"><failure message="1 is not 2"/></testcase>'
        '<testcase classname="a" name="broken"><error message="no such file"/></testcase>'
        '<testcase classname="b" name="left"><skipped message="no CUDA device"/></testcase>'
        "</testsuite></testsuites>"
    )
    assert gpu._counts(report) == {
        "passed": 1,
        "failed": 2,
        "skipped": 1,
        "failures": ["a::wrong: 1 is not 2", "a::broken: no such file"],
        "skipped_because": ["no CUDA device"],
    }
    assert gpu._counts(tmp_path / "none.xml") == {}


def test_tests_for_cuda_are_found_where_they_are_marked(gpu, tmp_path):
    folder, mark = tmp_path / "tests", "pytest.mark." + "cuda"
    for name, text in {
        "one/test_a.py": mark,
        "one/test_b.py": "",
        "one/helper.py": mark,
        "two/conftest.py": mark,
        "two/test_c.py": mark,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert gpu._marked(folder) == ["tests/one/test_a.py", "tests/two"]


def test_a_part_that_takes_too_long_is_ended_with_all_it_has_started(gpu, tmp_path):
    log = tmp_path / "log"
    found = gpu.run(["sh", "-c", "sleep 600 & echo $!; sleep 600"], 1.0, log)
    assert found["status"] == "out of time"
    child = int(log.read_text().split()[0])
    for _ in range(100):
        if not _runs(child):
            break
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # One that has ended, and that nobody has asked after, is still there by name.
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def test_a_part_is_told_how_it_ended(gpu, tmp_path):
    found = gpu.run(
        [sys.executable, "-c", "print('one'); raise SystemExit(3)"], 60.0, tmp_path / "l"
    )
    assert (found["status"], found["said"]) == (3, ["one"])


def test_a_python_that_sees_a_gpu_comes_first(gpu, monkeypatch, tmp_path):
    def fake(name, **found):
        path = tmp_path / name
        known = {"torch": "2.11", "cuda": False, "missing": []} | found
        path.write_text(f"#!/bin/sh\necho noise\necho '{json.dumps(known)}'\n")
        path.chmod(0o755)
        return str(path)

    here = fake("here", missing=["pytest"])
    seeing = fake("seeing", cuda=True, device="A GPU")
    without = fake("without", torch=None)
    monkeypatch.setattr(gpu.sys, "executable", here)
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: seeing)
    assert [each.path for each in gpu.interpreters()] == [seeing, here]
    monkeypatch.setattr(gpu.shutil, "which", lambda name: without)
    assert [each.path for each in gpu.interpreters()] == [here]


def test_every_part_is_in_the_document_as_soon_as_it_has_ended(gpu, monkeypatch, tmp_path, capsys):
    python = gpu.Interpreter("python", {"torch": "2.11", "cuda": False, "missing": []})
    monkeypatch.setattr(gpu, "interpreters", lambda: [python])
    path = tmp_path / "simulated.json"
    monkeypatch.setattr(gpu, "tests", lambda *_: {"status": 0, "failed": 1})
    monkeypatch.setattr(gpu, "profiles", lambda *_: {"status": 0, "so far": path.read_text()})
    monkeypatch.setattr(gpu, "runtime", lambda *_: {"status": "out of time"})
    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", "-o", str(tmp_path)])
    assert gpu.main() == 1
    document = json.loads(path.read_text())
    assert document["simulated"] is True
    assert list(document["parts"]) == ["tests", "profiles", "runtime"]
    assert '"failed": 1' in document["parts"]["profiles"]["so far"]
    assert "CUDA is not seen" in capsys.readouterr().out
    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", "-o", str(tmp_path), "--only", "profiles"])
    assert gpu.main() == 0


def test_profiles_are_measured_on_the_simulated_device_where_there_is_no_gpu(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    profiles = importlib.import_module("gpu_profiles")
    monkeypatch.setattr(profiles.torch.cuda, "is_available", lambda: False)
    tiny = {"layers": 1, "width": 16, "heads": 2, "vocabulary": 20, "context": 8}
    cases = (
        profiles.Case("tiny", "gpt", "4x8", tiny),
        profiles.Case("wrong", "gpt", "4x9", tiny),
    )
    monkeypatch.setattr(profiles, "SMALL", cases)
    output = tmp_path / "profiles.json"
    monkeypatch.setattr(sys, "argv", ["gpu_profiles.py", "-o", str(output)])
    profiles.main()
    good, bad = json.loads(output.read_text())["profiles"]
    assert good["link"]["alone"] == good["link"]["computing"]
    assert good["step_ns"] == good["link"]["copying_ns"]
    assert (tmp_path / "problems" / "gpt.json").exists()
    assert "cannot run on an input of 4x9" in bad["error"]
    assert "tiny: 0." in capsys.readouterr().out
