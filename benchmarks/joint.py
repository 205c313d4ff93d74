"""Search for joint plans of networks at parts of their peak, beside either means alone.

    python benchmarks/joint.py resnet50 densenet201 gpt --memory 1/4,1/6 -o out/joint.json

Prints a Markdown table and writes everything as JSON. Every plan is checked: that its execution is
a legal one of the network, and its schedule one within the limit. Limits are parts of the peak of
the step in which everything runs once, or sizes such as 800MiB.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.joint_methods import warm_joint_search
from offcert.certification.schedule_methods import (
    warm_local_search,
    warm_order_search,
)
from offcert.certification.warm import warm_plans
from offcert.core.documents import write_json
from offcert.core.platform import Kind
from offcert.core.units import format_size, format_time
from offcert.heuristics.joint.plans import JointPlan, ranges_of
from offcert.heuristics.joint.search import joint_search
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem, Recompute, parse_memory
from offcert.runtime.hardware import hardware
from offcert.runtime.profiling.profile import profile
from offcert.verification.execution import execution_faults

# What may be done, and its column.
MEANS = {"both": "both", "recompute": "recomputation alone", "offload": "offloading alone"}
INPUTS = {"gpt": "8x256", "inception_v3": "32x3x299x299"}
DEFAULT_INPUT = "32x3x224x224"


def measure(problem: Problem, means: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return one row: the best plan that is found with some means, checked."""
    limited = replace(problem, recompute=Recompute.ANY, offload=means != "recompute")
    found: list[tuple[float, JointPlan]] = []
    begun, cpu = time.monotonic(), time.process_time()
    # No range at all: nothing runs again.
    ranges = [] if means == "offload" else None if options.any_range else ranges_of(problem)
    joint_search(
        limited,
        time_limit=options.time_limit,
        workers=options.workers,
        seed=options.seed,
        ranges=ranges,
        on_improvement=lambda plan: found.append((time.monotonic() - begun, plan)),
    )
    row: dict[str, Any] = {
        "network": problem.name,
        "means": means,
        "memory": problem.platform.memory,
        "peak": problem.trace.peak_memory,
        "compute_time": problem.trace.compute_time,
        "operations": len(problem.trace),
        "ranges": "any" if ranges is None else len(ranges),
        "seconds": time.monotonic() - begun,
        "cpu_seconds": time.process_time() - cpu,
        "makespan": None,
    }
    return row | (outcome(limited, *found[-1]) if found else {})


def outcome(problem: Problem, seconds: float, plan: JointPlan) -> dict[str, Any]:
    """Return the numbers of a plan for its row, after checking it."""
    assert problem.computed is not None
    scheduled = problem.executed(plan.execution)
    faults = execution_faults(problem.computed, plan.execution) + check(scheduled, plan.schedule)
    assert not faults, faults
    moved = [item for item in plan.schedule.transfers if item.kind is Kind.OFFLOAD]
    return {
        "makespan": plan.schedule.makespan,
        "found_after": seconds,
        "recomputed": scheduled.trace.compute_time - problem.trace.compute_time,
        "runs_again": plan.execution.repeated,
        "segments": len(plan.program.segments),
        "moved": sum(scheduled.trace.gap_size(item.gap) for item in moved),
    }


def table(rows: list[dict[str, Any]], problem: Problem) -> str:
    """Return the rows of one network as a Markdown table."""
    lines = [
        "| memory | means | step | of computing | found in | recomputed | moved out |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        limit = f"{row['limit']} = {format_size(row['memory'], problem.units)}"
        begin = f"| {limit} | {MEANS[row['means']]} "
        if row["makespan"] is None:
            lines.append(f"{begin}| no plan found | | | | |")
            continue
        lines.append(
            f"{begin}| {format_time(row['makespan'], problem.units)} "
            f"| {row['makespan'] / row['compute_time']:.3f} × | {row['found_after']:.1f} s "
            f"| {format_time(row['recomputed'], problem.units)} "
            f"| {format_size(row['moved'], problem.units)} |"
        )
    return "\n".join(lines)


def limit_of(text: str, problem: Problem) -> int:
    """Return the bytes of a part of the peak, or of a size."""
    if text.replace("/", "").replace(".", "").isdigit():
        return int(problem.trace.peak_memory * Fraction(text))
    return parse_memory(text, problem)


def run(network: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Search for plans of one network at every limit, print the table and return the rows."""
    given = options.input or INPUTS.get(network, DEFAULT_INPUT)
    problem = profile(
        network,
        given,
        clock=options.clock,
        hardware=hardware(options.hardware, peak=True),
        recompute="none",
    )
    rows = []
    for text in options.memory.split(","):
        limited = problem.with_memory(limit_of(text, problem))
        for means in options.means:
            row = measure(limited, means, options) | {"limit": text}
            print(json.dumps(row), file=sys.stderr)
            rows.append(row)
    print(f"\n{problem.name}\n\n{table(rows, problem)}")
    return rows


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--input", help="by default what suits the network")
    parser.add_argument("--hardware", default="v100-pcie")
    parser.add_argument("--clock", default="modules", choices=("modules", "operators"))
    parser.add_argument("--memory", default="1/4,1/6", help="parts of the peak, or sizes")
    parser.add_argument("--means", nargs="+", default=list(MEANS), choices=list(MEANS))
    parser.add_argument("--any-range", action="store_true", help="whatever the runtime can do")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    # Compiling is not searching.
    warming = (warm_plans, warm_order_search, warm_local_search, warm_joint_search)
    for warm in warming:
        warm()
    rows = []
    for network in options.networks:
        rows += run(network, options)
        if options.output is not None:
            write_json(options.output, rows)


if __name__ == "__main__":
    main()
