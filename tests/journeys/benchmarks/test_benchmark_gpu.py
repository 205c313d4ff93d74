"""`make gpu`: that each part ends in time, and what is told of it."""

import importlib
import json
import os
import sys
import time
import zipfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from offcert.certification.ladder import certify
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.questions.schedule.problem import Problem
from offcert.runtime.workloads.standard_step import standard_step
from offcert.runtime.workloads.workload import Workload
from offcert.runtime.zoo import build

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu")


@pytest.fixture
def rows(gpu):
    return importlib.import_module("gpu_rows")


@pytest.fixture
def small(gpu):
    return importlib.import_module("gpu_small")


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
    path, begun = tmp_path / "simulated.json", []

    def measured(part, python, folder, seconds, chosen):
        begun.append((part, json.loads(path.read_text())["parts"] if begun else {}))
        return {"status": 0, "failed": part == "ways"}

    monkeypatch.setattr(gpu, "measured", measured)
    monkeypatch.setattr(gpu, "tests", lambda *_: {"status": "out of time"})
    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", "-o", str(tmp_path)])
    assert gpu.main() == 1
    document = json.loads(path.read_text())
    assert document["simulated"] is True
    assert tuple(document["parts"]) == gpu.PARTS
    assert begun[2] == ("certificates", {name: document["parts"][name] for name in gpu.PARTS[:2]})
    assert "CUDA is not seen" in capsys.readouterr().out
    # Parts can be run one by one, and the others stay known.
    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", "-o", str(tmp_path), "--part", "train"])
    assert gpu.main() == 0
    assert tuple(json.loads(path.read_text())["parts"]) == gpu.PARTS
    assert begun[-1][0] == "train"
    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", "-o", str(tmp_path), "--minutes", "0"])
    assert gpu.main() == 1
    assert json.loads(path.read_text())["parts"]["profiles"]["status"] == "no time was left"


def test_rows_of_a_card_that_were_brought_along_are_of_that_card(gpu, rows, tmp_path):
    python = gpu.Interpreter("python", {"torch": "2.11", "cuda": False, "missing": []})
    brought = [rows.Row("ways", "vit-l", "plain", "A card", measured_ms=1.0)]
    brought += [rows.Row("certificates", "vit-l", "joint")]
    assert gpu.write(tmp_path, "simulated", brought, python, {})["device"] == "A card"
    assert json.loads((tmp_path / "a-card.json").read_text())["simulated"] is False
    other = rows.Row("ways", "vit-l", "plain", "Another card")
    assert gpu.write(tmp_path, "simulated", [*brought, other], python, {})["simulated"] is True


def test_wheels_are_found_without_being_installed(gpu, monkeypatch, tmp_path):
    with zipfile.ZipFile(tmp_path / "one-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("brought_along.py", "VALUE = 7")
    monkeypatch.setattr(gpu, "WHEELS", tmp_path)
    gpu.unpack(tmp_path)
    code = "import brought_along; print(brought_along.VALUE)"
    found = gpu.run([sys.executable, "-c", code], 60.0, tmp_path / "log")
    assert found["said"] == ["7"]
    # Once is enough.
    (tmp_path / "unpacked/brought_along.py").write_text("VALUE = 8")
    gpu.unpack(tmp_path)
    assert (tmp_path / "unpacked/brought_along.py").read_text() == "VALUE = 8"


def test_a_row_is_there_whatever_comes_after_it(rows, tmp_path):
    kept = rows.Rows(tmp_path / "a/rows.jsonl")
    assert list(kept) == []
    first = rows.Row("ways", "vit-l", "plain", measured_ms=2.0)
    kept.add(first)
    with kept.path.open("a") as file:
        file.write('{"part": "ways", "netw')
    failed = rows.Row("ways", "vit-l", "checkpointing", failed=True)
    kept.add(failed)
    assert list(kept) == [first, failed]
    assert kept.find("ways", "vit-l", "plain") == first
    assert kept.find("ways", "vit-l", "checkpointing") is None
    kept.add(replace(failed, failed=False, measured_ms=3.0))
    assert kept.find("ways", "vit-l", "checkpointing").measured_ms == 3.0
    assert len(list(kept)) == 2


def test_what_misses_a_goal_is_said(rows):
    def planned(way="joint", **columns):
        said = {"bound_ms": 98.0, "forecast_ms": 105.0, "measured_ms": 106.0, "hosted_ms": 105.0}
        said |= {
            "planned": 10,
            "steps": 10,
            "bitwise": True,
            "first_ms": 400.0,
            "pinning_ms": 150.0,
        }
        return rows.Row("train", "resnet50", way, **(said | columns))

    others = [
        rows.Row("ways", "resnet50", "plain", measured_ms=90.0),
        rows.Row("ways", "resnet50", "checkpointing", measured_ms=120.0),
    ]

    def missed(row):
        [(_, _, found)] = rows.goals([*others, row])
        return found

    assert missed(planned()) == []
    assert missed(planned(measured_ms=97.0)) == ["97.0 ms are less than the bound of 98.0"]
    assert missed(planned(measured_ms=112.0, hosted_ms=None)) == ["1.07 x the forecast of 105.0 ms"]
    assert missed(planned(measured_ms=110.0)) == [
        "110.0 ms are above the forecast with the host: 107.1"
    ]
    slow = planned(measured_ms=125.0, forecast_ms=125.0, hosted_ms=None)
    assert missed(slow) == ["125.0 ms are above checkpointing: 120.0"]
    # What only moves may take longer than checkpointing.
    assert missed(replace(slow, way="moving")) == []
    assert missed(planned(planned=9)) == ["9 of 10 steps were planned"]
    assert missed(planned(bitwise=False)) == ["gradients differ"]
    assert missed(planned(first_ms=421.0)) == [
        "421.0 ms are above 3 plain steps and pinning in the first: 420.0"
    ]
    assert rows.goals(others) == []
    profile = rows.Row("profiles", "resnet50", "profile", measured_ms=91.0)
    assert rows.goals([*others, profile]) == [("resnet50", "profile", [])]
    # The host's part counts where it is known.
    [(_, _, found)] = rows.goals([*others, replace(profile, hosted_ms=92.0)])
    assert found == ["operations add up to 92.0 ms, a plain step took 90.0"]
    text = "\n".join(rows.table([*others, planned(limit=2**30)]))
    assert "| train | joint | 1,024 | 98.0 | 105.0 | 105.0 | 106.0 |" in text


def test_memory_that_is_reserved_later_is_growth(small):
    assert small.growth([5] * 20) == "reserved 5 bytes in the first 2 steps, 0 more later"
    assert small.growth([9, 5, *[9] * 17, 12]).endswith(", 3 more later")


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.import_module("gpu_parts")
    networks = importlib.import_module("gpu_networks")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def tiny(device):
        return standard_step(build("gpt-tiny"), Workload("gpt-tiny", (4, 16)))

    monkeypatch.setattr(networks, "NETWORKS", {"tiny": (tiny, tiny)})
    monkeypatch.setattr(found, "NETWORKS", networks.NETWORKS)
    monkeypatch.setattr(importlib.import_module("gpu_small"), "SIMULATED_STEPS", 4)
    return found


def test_all_parts_run_on_the_simulated_device_and_begin_where_they_ended(
    parts, rows, tmp_path, capsys
):
    def part(name, *options):
        parts.main([name, "--folder", str(tmp_path), "--search-seconds", "3", *options])
        return capsys.readouterr().out

    assert "no certificate" in part("train")
    assert "no problem" in part("certificates")
    for name in ("profiles", "ways", "certificates", "train", "small"):
        part(name)
    found = {(row.part, row.way): row for row in rows.Rows(tmp_path / "rows.jsonl")}
    assert not [row.note for row in found.values() if row.failed]
    plain, joint = found["ways", "plain"], found["train", "joint"]
    assert found["profiles", "profile"].measured_ms == plain.measured_ms
    assert found["ways", "checkpointing"].peak_allocated < plain.peak_allocated
    assert joint.peak_allocated <= joint.limit < plain.peak_allocated
    assert joint.bound_ms <= joint.measured_ms == pytest.approx(joint.forecast_ms)
    assert joint.planned == joint.steps > 0
    assert joint.bitwise
    assert found["small", "plain"].note == "out of memory, as it should be"
    small = found["small", "joint"]
    assert small.planned == small.steps == 4
    assert small.note.endswith(" 0 more later")
    assert all(not missed for _, _, missed in rows.goals(found.values()))
    # What is there is not measured again, what is gone is.
    written = (tmp_path / "rows.jsonl").read_text()
    for name in ("profiles", "ways", "certificates", "train", "small"):
        assert part(name) == ""
    assert (tmp_path / "rows.jsonl").read_text() == written
    assert "left for the next call" in part("ways", "--again", "--seconds", "0")
    assert (tmp_path / "rows.jsonl").read_text() == written


def test_a_row_that_fails_leaves_the_others(parts, rows, monkeypatch, tmp_path):
    parts.main(["profiles", "--folder", str(tmp_path)])

    def broken():
        raise RuntimeError("no such way")

    monkeypatch.setitem(parts.WAYS, "checkpointing", broken)
    parts.main(["ways", "--folder", str(tmp_path)])
    found = {row.way: row for row in rows.Rows(tmp_path / "rows.jsonl")}
    assert found["checkpointing"].note == "RuntimeError: no such way"
    assert found["plain"].bitwise
    assert found["save_on_cpu"].measured_ms > found["plain"].measured_ms
    with pytest.raises(SystemExit) as told:
        parts.main(["ways", "--folder", str(tmp_path), "--networks", "gpt3"])
    assert told.value.code == 2


def test_documents_of_another_machine_are_compared(parts, rows, monkeypatch, tmp_path):
    documents = tmp_path / "documents"
    documents.mkdir()
    link = {"alone": [10**9, 10**9]}
    operations = [Operation(f"o{i}", 10**6) for i in range(4)]
    trace = Trace(operations, [Tensor("x", 1000, (0, 3))])
    source = {"hardware": "A card", "measurement": {"link": link}}
    problem = Problem(
        "p", trace, Platform(1000, Fraction(1)), units=Units("ns", "B"), source=source
    )
    certify(problem, time_limit=2).write(documents / "quick.json")
    certify(problem, time_limit=2).write(documents / "slow.json")
    took = [("plain", 4.0), ("quick.json", 4.1), ("slow.json", 5.0)]
    measured = [{"network": "n", "way": way, "ms": ms} for way, ms in took]
    (documents / "measured.json").write_text(json.dumps({"rows": measured}))
    parts.main(["bracket", "--folder", str(tmp_path), "--documents", str(documents)])
    found = {row.network: row for row in rows.Rows(tmp_path / "rows.jsonl")}
    assert found["quick.json"].note == "holds"
    assert found["quick.json"].bound_ms == 4.0
    assert found["slow.json"].note == "1.25 x the forecast of 4.0 ms"
    assert found["slow.json"].device == "A card"
    measured[0]["ms"] = 3.0
    (documents / "measured.json").write_text(json.dumps({"rows": measured}))
    parts.main(["bracket", "--folder", str(tmp_path), "--documents", str(documents), "--again"])
    found = {row.network: row for row in rows.Rows(tmp_path / "rows.jsonl")}
    assert found["quick.json"].note == "the profile adds up to 4.0 ms, a plain step took 3.0"
