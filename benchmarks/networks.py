"""Certify networks at several memory limits and put the papers' heuristics beside the result.

    python benchmarks/networks.py resnet50 --memory 0,10,25,50,75 -o out/networks.json

Prints a Markdown table and writes everything as JSON. Makespans of the heuristics are given as
ratios to the best one found in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certify.ladder import certify
from offcert.certify.methods import solve
from offcert.certify.verify import verify
from offcert.core.documents import write_json
from offcert.core.errors import MethodError
from offcert.core.problem import Problem
from offcert.core.units import format_size, format_time
from offcert.runtime.profile import profile

HEURISTICS = ("greedy", "dynprog")


def measure(problem: Problem, percent: Fraction, time_limit: float, workers: int) -> dict[str, Any]:
    """Return one row: the certificate's claims, and the heuristics' ratios to its makespan."""
    limited = problem.with_memory(problem.memory_at(percent / 100))
    certificate = certify(limited, time_limit=time_limit, workers=workers)
    result = certificate.result
    begun = time.monotonic()
    verification = verify(certificate.to_json())
    assert verification.valid, verification.faults
    assert result.objective is not None
    row: dict[str, Any] = {
        "network": problem.name,
        "memory_percent": str(percent),
        "memory": limited.platform.memory,
        "compute_time": problem.trace.compute_time,
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "status": str(result.status),
        "evidence": str(verification.evidence),
        "seconds": result.runtime,
        "verify_seconds": time.monotonic() - begun,
        "bounds": {bound.method: bound.value for bound in result.bounds},
    }
    for name in HEURISTICS:
        try:
            found = solve(limited, name).result.objective
        except MethodError:
            found = None
        row[name] = None if found is None else found / result.objective
    return row


def table(rows: list[dict[str, Any]], problem: Problem) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| memory | step | of computing | gap | evidence | found in | GREEDY | DYNPROG |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        heuristics = [f"{row[name]:.3f}" if row[name] else "no plan" for name in HEURISTICS]
        lines.append(
            f"| {row['memory_percent']} % = {format_size(row['memory'], problem.units)} "
            f"| {format_time(row['objective'], problem.units)} "
            f"| {row['objective'] / row['compute_time']:.2f} × "
            f"| {100 * row['gap']:.2g} % | {row['evidence']} | {row['seconds']:.1f} s "
            f"| {' | '.join(heuristics)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--input", default="32x3x224x224")
    parser.add_argument("--hardware", default="v100-pcie")
    parser.add_argument("--memory", default="0,5,10,25,50,75")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for network in options.networks:
        problem = profile(network, options.input, hardware=options.hardware)
        own = []
        for percent in options.memory.split(","):
            own.append(measure(problem, Fraction(percent), options.time_limit, options.workers))
            print(json.dumps(own[-1]), file=sys.stderr)
        print(f"\n{problem.name}\n\n{table(own, problem)}")
        rows += own
        if options.output is not None:
            write_json(options.output, rows)


if __name__ == "__main__":
    main()
