"""How long all kernels take to compile from nothing, and how fast they then are.

python benchmarks/compile.py -o out/compile.json

The seconds are those of a processor core, and depend on the machine; so does what they are compared
with. `--baseline` takes what another version wrote on the same machine at about the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json

# What searches are timed on: labels are limited, not seconds, so that the work is always the same.
PROBLEM = "resnet18-224-b32-m25"
LABELS = 100_000
STEPS = 30_000
REPEATS = 3

_COMPILE = """
import json, sys
from dataclasses import asdict
from offcert.certification.compile import compile_all
print(json.dumps(asdict(compile_all(int(sys.argv[1])))))
"""


def compilation(workers: int) -> dict[str, Any]:
    """Return seconds and bytes of compiling everything, with an empty folder for the results."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", _COMPILE, str(workers)],
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
            capture_output=True,
            text=True,
            check=True,
        )
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    document: dict[str, Any] = json.loads(done.stdout)
    return {"workers": workers, "stored_bytes": stored, **document}


def least_seconds(work: Callable[[], object]) -> float:
    """Return the least seconds of a core that some work takes, once everything is loaded."""
    work()
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def rates(name: str = PROBLEM, labels: int = LABELS, steps: int = STEPS) -> dict[str, float]:
    """Return labels and annealing steps a second of a core."""
    from offcert.formulations.labels.ends.heads import heads_bound
    from offcert.formulations.labels.pivot.bound import pivot_bound
    from offcert.heuristics.evictions.rules import sequential
    from offcert.heuristics.orders.annealing import Annealer
    from offcert.instances.library import load, record
    from offcert.questions.schedule.simulate import Simulator

    problem, value = load(name), record(name).value
    assert value is not None
    forever = float("inf")
    stored: dict[str, int] = {}

    def pivot() -> None:
        outcome = pivot_bound(problem, upper_bound=value + 1, time_limit=forever, max_labels=labels)
        stored["pivot labels"] = outcome.labels

    def heads() -> None:
        outcome = heads_bound(
            problem, upper_bound=value + 1, time_limit=forever, max_labels=labels // 10
        )
        stored["heads labels"] = outcome.labels

    def anneal() -> None:
        Annealer(Simulator(problem), sequential(problem), 1).run(steps, 1e6, 10.0)
        stored["annealing steps"] = steps

    seconds = [least_seconds(work) for work in (pivot, heads, anneal)]
    return {what: stored[what] / spent for what, spent in zip(stored, seconds, strict=True)}


def ratios(now: dict[str, Any], before: dict[str, Any]) -> dict[str, float]:
    """Return how many times as long compiling took before, and how many times as fast all is."""
    faster = {
        what: rate / before["rates"][what]
        for what, rate in now["rates"].items()
        if what in before["rates"]
    }
    times = before["compilation"]["cpu_seconds"] / now["compilation"]["cpu_seconds"]
    return {"compiling": times, **faster}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=2, metavar="COUNT")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="of another version")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    document: dict[str, Any] = {"compilation": compilation(options.workers), "rates": rates()}
    done = document["compilation"]
    for group in done["groups"]:
        print(f"{group['cpu_seconds']:7.1f} s  {group['name']}, {group['compiled']} kernels")
    print(
        f"{done['cpu_seconds']:7.1f} s of a core in all, {done['wall_seconds']:.1f} s with "
        f"{done['workers']} processes, {done['stored_bytes'] / 2**20:.1f} MiB"
    )
    for what, rate in document["rates"].items():
        print(f"{rate:11,.0f} {what} a second")
    if options.baseline is not None:
        document["ratios"] = ratios(document, json.loads(options.baseline.read_text()))
        for what, ratio in document["ratios"].items():
            print(f"{ratio:7.2f} times as fast: {what}")
    if options.output is not None:
        write_json(options.output, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
