"""The benchmark of joint plans prints its table and writes what it has measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_small_network(tmp_path: Path) -> None:
    file = tmp_path / "joint.json"
    call = [sys.executable, ROOT / "benchmarks" / "joint.py", "resnet18", "--input", "32x3x96x96"]
    call += ["--memory", "3/4,1MiB", "--time-limit", "1", "--workers", "1", "-o", file]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no plan found") == 3
    rows = {(row["limit"], row["means"]): row for row in json.loads(file.read_text())}
    assert len(rows) == 6
    both, alone, moved = (rows["3/4", means] for means in ("both", "recompute", "offload"))
    assert both["makespan"] <= min(alone["makespan"], moved["makespan"])
    assert both["makespan"] >= both["compute_time"] + both["recomputed"]
    assert alone["moved"] == 0 < moved["moved"]
    assert moved["recomputed"] == 0 < alone["recomputed"]
    assert f"{both['makespan'] / both['compute_time']:.3f} ×" in done.stdout
