"""Compare every heuristic of the literature with what `certify` finds and proves.

    python benchmarks/baselines.py --chains 24 --count 4 --memory 0,10,50 -o out/baselines.json
    python benchmarks/baselines.py --networks resnet18 -o out/baselines.json

Prints makespans as ratios to the best schedule of the same run (mean / largest), how often a
heuristic found no plan, and the largest certified gap of what they are compared with.
``--balanced`` gives chains the link that moves what exceeds the memory, out and back, in exactly
the time of all operations, whatever the memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.documents import write_json
from offcert.core.errors import MethodError
from offcert.instances.cnn import CnnChains
from offcert.questions.schedule.problem import Problem

HEURISTICS = ("greedy", "dynprog", "vdnn", "vdnn-all", "vdnn-conv", "autoswap", "tflms")


def problems(options: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    """Yield the problems to be compared, each with the name of the row it belongs to."""
    for stages in map(int, filter(None, options.chains.split(","))):
        for seed in range(options.count):
            chains = CnnChains(stages=stages, spikes=options.spikes)
            yield f"cnn-{stages}", chains.problem(seed)
    for network in filter(None, options.networks.split(",")):
        from offcert.runtime.hardware import hardware
        from offcert_lab.stages.problem import stage_problem

        card = hardware(options.hardware, peak=True)
        yield network, stage_problem(network, options.input, card)


def balanced(problem: Problem) -> Problem:
    """Return the problem on the link that moves the excess, out and back, in the compute time."""
    excess = problem.trace.peak_memory - problem.platform.memory
    if excess <= 0:
        return problem
    return problem.with_bandwidth(Fraction(2 * excess, problem.trace.compute_time))


def measure(problem: Problem, time_limit: float) -> dict[str, Any]:
    """Return the best makespan and its gap, and the ratio of every heuristic to it."""
    result = certify(problem, time_limit=time_limit, workers=1).result
    assert result.objective is not None
    row: dict[str, Any] = {
        "problem": problem.name,
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
    }
    for name in HEURISTICS:
        try:
            found = solve(problem, name).result.objective
            row[name] = "no plan" if found is None else found / result.objective
        except MethodError as error:
            row[name] = str(error)
    return row


def cell(group: list[dict[str, Any]], name: str) -> str:
    """Return one heuristic's ratios as mean / largest (how many had a plan, if not all)."""
    ratios = [row[name] for row in group if isinstance(row[name], float)]
    if not ratios:
        return "no plan" if any(row[name] == "no plan" for row in group) else "–"
    missing = "" if len(ratios) == len(group) else f" ({len(ratios)} of {len(group)})"
    return f"{sum(ratios) / len(ratios):.3f} / {max(ratios):.3f}{missing}"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows, by kind and memory, as a Markdown table."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["kind"], row["memory_percent"]].append(row)
    lines = [
        f"| problem | memory | gap | {' | '.join(HEURISTICS)} |",
        "| --- | ---: | ---: |" + " ---: |" * len(HEURISTICS),
    ]
    for (kind, percent), group in groups.items():
        cells = [cell(group, name) for name in HEURISTICS]
        gap = 100 * max(row["gap"] for row in group)
        lines.append(f"| {kind} | {percent} % | {gap:.2g} % | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chains", default="", help="numbers of stages")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--spikes", type=int, default=1)
    parser.add_argument("--balanced", action="store_true")
    parser.add_argument("--networks", default="", help="names of the zoo")
    parser.add_argument("--input", default="32x3x224x224")
    parser.add_argument("--hardware", default="v100-pcie")
    parser.add_argument("--memory", default="0,10,50")
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for kind, problem in problems(options):
        for percent in options.memory.split(","):
            limited = problem.with_memory(problem.memory_at(Fraction(percent) / 100))
            if options.balanced:
                limited = balanced(limited)
            row = {"kind": kind, "memory_percent": percent}
            rows.append(row | measure(limited, options.time_limit))
            print(json.dumps(rows[-1]), file=sys.stderr)
            if options.output is not None:
                write_json(options.output, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
