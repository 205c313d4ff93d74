"""Plans as memory snapshots: PyTorch reads them."""

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
from offcert.report.memory_curve import memory_curve
from offcert.report.memory_viz import save_snapshot, snapshot
from support.problems.random_instances import random_problem

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


def test_what_has_no_whole_stays_is_no_snapshot(tmp_path: Path) -> None:
    from dataclasses import replace

    pieces = replace(PROBLEM, transfers="interruptible")
    found = solve(pieces, "fluid-exact", time_limit=5)
    with pytest.raises(InputError, match="in pieces"):
        save_snapshot(found, tmp_path / "p.pickle")
    assert not list(tmp_path.iterdir())
