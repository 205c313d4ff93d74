"""Plans as memory snapshots: PyTorch reads them, and a measured one is compared by name."""

import copy
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.methods import solve
from offcert.cli import main
from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.training_files import write_training
from offcert.report.memory_curve import memory_curve
from offcert.report.memory_viz import (
    compare,
    read_snapshot,
    save_snapshot,
    snapshot,
    training_snapshot,
)
from support.problems.random_instances import random_problem
from support.problems.training_records import course, made

KIB = 1024
SIZES = [10 * KIB, 2 * KIB, KIB]
CHAIN = Chain([30000, 40000], [40000, 20000], SIZES, [0, 0, 0], [0, 8 * KIB])
PLATFORM = Platform(13 * KIB, Fraction(1, 5))
PROBLEM = Problem("p", CHAIN, PLATFORM, units=Units("ns", "B"))


def certificate() -> Certificate:
    return solve(PROBLEM, "sequential")


def history(found: dict[str, Any]) -> list[dict[str, Any]]:
    (entries,) = found["device_traces"]
    return list(entries)


def test_events_are_the_stays_of_tensors_in_the_order_of_time() -> None:
    """By hand: x0 is written before the step, leaves while F_0 runs, and is back for B_0."""
    entries = history(snapshot(certificate()))
    told = [
        (e["frames"][0]["name"], e["action"]) for e in entries if e["action"] != "free_completed"
    ]
    assert told.index(("x0", "alloc")) == 0
    assert told.index(("x0", "free_requested")) < told.index(("workspace of F1", "alloc"))
    assert told.index(("workspace of F1", "free_requested")) < told.index(("x0 (back 1)", "alloc"))
    assert told[-1][1] == "free_requested"
    assert [e["time_us"] for e in entries] == sorted(e["time_us"] for e in entries)


@pytest.mark.parametrize("seed", range(12))
def test_live_bytes_are_the_memory_curve_and_no_addresses_overlap(seed: int) -> None:
    found = solve(random_problem(seed), "sequential")
    schedule = found.result.schedule
    assert isinstance(schedule, Schedule)
    live: dict[int, int] = {}
    most = 0
    for entry in history(snapshot(found)):
        if entry["action"] == "alloc":
            begin, end = entry["addr"], entry["addr"] + entry["size"]
            assert all(end <= other or other + size <= begin for other, size in live.items())
            live[begin] = entry["size"]
        elif entry["action"] == "free_completed":
            assert live.pop(entry["addr"]) == entry["size"]
        most = max(most, sum(live.values()))
    assert live == {}
    if 0 not in found.problem.trace.durations:
        assert most == max(memory_curve(found.problem, schedule)[1])


@pytest.mark.slow
def test_pytorch_reads_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from torch.cuda import _memory_viz

    certificate().write(tmp_path / "c.json")
    path = tmp_path / "plan.pickle"
    assert main(["plot", str(tmp_path / "c.json"), "-o", str(path)]) == 0
    assert capsys.readouterr().out == (
        f"wrote {path}, a memory snapshot: drop it into https://pytorch.org/memory_viz\n"
    )
    loaded = pickle.loads(path.read_bytes())
    entries = history(loaded)
    text = _memory_viz.trace(loaded)
    assert text.startswith(f"Device 0 ----------------\n{len(entries)} entries")
    allocated = sum(e["action"] == "alloc" for e in entries)
    assert text.count(" = seg_0[") == allocated
    assert "seg_0[0:10.0KiB]" in text
    # All that is free in the end, and the whole in one segment.
    (segment,) = loaded["segments"]
    assert segment["total_size"] >= 13 * KIB
    assert "reserved: " in _memory_viz.segsum(loaded)
    assert "snapshot.pickle" in _memory_viz.trace_plot(loaded)


def measured(path: Path, change: Any = None) -> Path:
    """Write what a step by the plan could have left: rounded sizes, and temporary ones between."""
    found = snapshot(certificate())
    entries = []
    for entry in history(found):
        name = entry["frames"][0]["name"]
        entry = copy.deepcopy(entry)
        entry["frames"] = [{"filename": "net.py", "line": 7, "name": f"forward of {name}"}]
        if "workspace" in name:
            entry["size"] = 12345
        entries.append(entry)
        if entry["action"] == "alloc":
            other = {"addr": 1, "size": 999_000, "stream": 0, "time_us": 0, "frames": []}
            entries += [other | {"action": action} for action in ("alloc", "free_requested")]
    if change is not None:
        change(entries)
    found["device_traces"] = [[], entries]
    path.write_bytes(pickle.dumps(found))
    return path


def test_a_step_as_planned_is_followed_to_its_end(tmp_path: Path) -> None:
    found = compare(certificate(), read_snapshot(measured(tmp_path / "m.pickle")))
    assert (found.expected, found.instead) == ((), None)
    # x0 twice, x1 and x2: gradients have no bytes here.
    assert found.followed == found.planned == 2 * 4
    assert str(found) == f"{found.planned} of {found.planned} events as planned"


def test_the_first_event_that_deviates_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stays(entries: list[dict[str, Any]]) -> None:
        """Let x0 not leave: neither its end nor its return happens."""
        mine = [
            e
            for e in entries
            if e["frames"] and e["frames"][0]["name"] in ("forward of x0", "forward of x0 (back 1)")
        ]
        for entry in mine[1:4]:
            entries.remove(entry)

    path = measured(tmp_path / "m.pickle", stays)
    found = compare(certificate(), read_snapshot(path))
    assert found.followed < found.planned
    assert "the end of x0 (10.00 KiB)" in found.expected
    assert found.instead is not None
    certificate().write(tmp_path / "c.json")
    page = tmp_path / "r.html"
    command = ["report", str(tmp_path / "c.json"), "--measured", str(path), "-o", str(page)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "the end of x0 (10.00 KiB) was due, but there is " in said
    assert "the end of x0 (10.00 KiB) was due" in page.read_text()


def test_training_is_a_snapshot_of_what_was_counted(tmp_path: Path) -> None:
    """By hand: live bytes at begin, at most and at the end of three operations."""
    path = tmp_path / "t.pickle"
    write_training(tmp_path / "t.json", made())
    assert main(["plot", str(tmp_path / "t.json"), "-o", str(path)]) == 0
    live, course, names = 0, [], []
    for entry in read_snapshot(path):
        if entry["action"] != "free_requested":
            live += entry["size"] if entry["action"] == "alloc" else -entry["size"]
            course.append(live)
        if entry["action"] == "alloc":
            names.append((entry["frames"][0]["name"], entry["size"]))
    tops = [
        here
        for last, here, after in zip([0, *course], course, [*course[1:], 0], strict=False)
        if here > last and here > after
    ]
    assert tops == [8, 9, 12]
    assert course[-1] == 0
    # x0 came back between two operations, and was counted.
    assert ("for F:a", 2) in names
    assert ("x0", 2) in names
    assert ("while B:b runs", 6) in names


def test_training_that_was_not_counted_is_no_snapshot() -> None:
    with pytest.raises(InputError, match="no counted bytes"):
        training_snapshot(made(measured=None))
    with pytest.raises(InputError, match="no counted bytes"):
        training_snapshot(made(measured=course(counted=False)))


class Evil:
    def __reduce__(self) -> Any:
        return print, ("run",)


@pytest.mark.parametrize("content", [Evil(), 3, {"device_traces": [[{}]]}, {"device_traces": []}])
def test_reading_runs_nothing_and_says_what_is_no_snapshot(
    content: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.pickle"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=r"m\.pickle (is no memory snapshot|has no history)"):
        read_snapshot(path)
    assert capsys.readouterr().out == ""


def test_what_has_no_whole_stays_is_no_snapshot(tmp_path: Path) -> None:
    from dataclasses import replace

    pieces = replace(PROBLEM, transfers="interruptible")
    found = solve(pieces, "fluid-exact", time_limit=5)
    with pytest.raises(InputError, match="in pieces"):
        save_snapshot(found, tmp_path / "p.pickle")
    assert not list(tmp_path.iterdir())
