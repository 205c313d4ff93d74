"""Results of `certify` on long traces when its time is over, and whether it keeps its time.

    offcert profile densenet201 --input 32x3x224x224 --clock operators -o densenet201.json
    python benchmarks/long_traces.py densenet201.json --at 2 10 25 50 --time-limit 60
    python benchmarks/long_traces.py --stages 300 1000 3000 --at 40 -o out/long.json

Each problem is certified in a process of its own, at each memory limit: a percentage of the way
from the least memory of the trace to its peak, or bytes with ``--memory``. Kernels are compiled or
loaded before, as limits do not count that. Printed are the gap, the evidence of the best bound, how
long after its time limit `certify` returned, how long verification takes, and the most memory that
the process ever had.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.schedule_methods import (
    warm_local_search,
    warm_order_search,
)
from offcert.certification.search import SearchProgress
from offcert.core.documents import write_json
from offcert.instances.cnn import CnnChains
from offcert.questions.schedule.files import read_problem
from offcert.questions.schedule.problem import Problem
from offcert.verification.document import verify

# Gaps that goals are about.
LEVELS = (0.01, 0.001, 0.0001)


def measure(problem: Problem, time_limit: float, workers: int, seed: int) -> dict[str, Any]:
    """Return the result of `certify`, when it was reached, the faults, and seconds."""
    for warm in (warm_local_search, warm_order_search):
        warm()
    reached: dict[float, float] = {}

    def note(progress: SearchProgress) -> None:
        if progress.objective is not None:
            gap = (progress.objective - progress.lower_bound) / progress.objective
            for level in LEVELS:
                if gap <= level:
                    reached.setdefault(level, progress.seconds)

    begun = time.monotonic()
    certificate = certify(problem, time_limit=time_limit, workers=workers, seed=seed, progress=note)
    certified = time.monotonic()
    verification = verify(certificate.to_json())
    verified = time.monotonic()
    result = certificate.result
    best = max(result.bounds, key=lambda bound: bound.value)
    return {
        "name": problem.name,
        "operations": len(problem.trace),
        "gaps": len(problem.trace.gaps),
        "memory": problem.platform.memory,
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": float(result.gap),
        "method": best.method,
        "evidence": str(best.evidence),
        "seconds": certified - begun,
        "over": max(0.0, certified - begun - time_limit),
        "reached": {f"{100 * level:g} %": seconds for level, seconds in reached.items()},
        "verify_seconds": verified - certified,
        "faults": verification.faults,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def problems(options: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    """Yield the problems that were asked for, each with what its memory limit is called."""
    bases = [read_problem(path) for path in options.problems]
    bases += [CnnChains(stages=stages).problem(options.seed) for stages in options.stages]
    for base in bases:
        for percent in options.at:
            part = Fraction(percent) / 100
            yield f"{percent} %", base.with_memory(base.memory_at(part))
        for memory in options.memory:
            yield f"{memory} B", base.with_memory(memory)


def line(label: str, row: dict[str, Any]) -> str:
    """Return a row of the table."""
    size = f"{row['operations']}/{row['gaps']}"
    found = f"{row['objective']}  {100 * row['gap']:8.5f} %  {row['evidence']}"
    times = f"{row['seconds']:6.1f} s  +{row['over']:4.1f} s  verify {row['verify_seconds']:5.1f} s"
    fault = "" if not row["faults"] else f"  INVALID: {row['faults'][0]}"
    name = f"{row['name']:28s} {size:>11s} {label:>8s}"
    return f"{name}  {found}  {times}  {row['peak_mib']:5.0f} MiB{fault}"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return how many rows reach each of the gaps, and the worst of the rest."""
    reached = (
        f"{sum(row['gap'] <= level for row in rows)} within {100 * level:g} %" for level in LEVELS
    )
    worst = {
        key: max(row[key] for row in rows) for key in ("gap", "over", "verify_seconds", "peak_mib")
    }
    return (
        f"{len(rows)} problems: {', '.join(reached)}; at most {100 * worst['gap']:.4f} % open, "
        f"{worst['over']:.1f} s over the limit, {worst['verify_seconds']:.1f} s to verify, "
        f"{math.ceil(worst['peak_mib'])} MiB"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("problems", nargs="*", type=Path, help="problem files")
    parser.add_argument("--stages", nargs="*", type=int, default=[], help="generated chains")
    parser.add_argument("--at", nargs="*", default=[], help="percent of the range of memory")
    parser.add_argument("--memory", nargs="*", type=int, default=[], help="bytes")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    rows = []
    # A process a problem: the most memory it ever had is that problem's.
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        for label, problem in problems(options):
            asked = options.time_limit, options.workers, options.seed
            rows.append(pool.submit(measure, problem, *asked).result() | {"at": label})
            print(line(label, rows[-1]), flush=True)
    if not rows:
        sys.exit("nothing to certify: name problem files or --stages, and --at or --memory")
    print(summary(rows))
    if options.output is not None:
        write_json(options.output, {"time_limit": options.time_limit, "rows": rows})


if __name__ == "__main__":
    main()
