"""Certify random chains like convolutional networks, where moving takes as long as computing.

python benchmarks/chains.py --stages 16,24,36 --count 4 -o out/chains.json

That is the hard regime: neither the device nor the link is idle in a good schedule. Prints, for
each number of stages and each memory limit, how many chains were solved to optimality, the largest
gap, and how close each bound came to the best schedule of the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.problem import Problem


def measure(problem: Problem, percent: int, time_limit: float, workers: int) -> dict[str, Any]:
    """Return one row: what `certify` claims, and what each bound reached."""
    limited = problem.with_memory(problem.memory_at(Fraction(percent, 100)))
    result = certify(limited, time_limit=time_limit, workers=workers).result
    assert result.objective is not None
    return {
        "problem": problem.name,
        "stages": len(problem.trace) // 2,
        "memory_percent": percent,
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "status": str(result.status),
        "seconds": result.runtime,
        "bounds": {bound.method: bound.value / result.objective for bound in result.bounds},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows, by number of stages and memory, as a Markdown table."""
    groups: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["stages"], row["memory_percent"]].append(row)
    lines = [
        "| stages | memory | optimal | largest gap | longest | prop3 | fractional | "
        "fractional-subset-sum | pivot | stage-milp |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    names = ("prop3", "fractional", "fractional-subset-sum", "pivot", "stage-milp")
    for (stages, percent), group in groups.items():
        worst = []
        for name in names:
            reached = [row["bounds"][name] for row in group if name in row["bounds"]]
            worst.append(f"{min(reached):.4f} ({len(reached)})" if reached else "–")
        solved = sum(row["status"] == "OPTIMAL" for row in group)
        lines.append(
            f"| {stages} | {percent} % | {solved} of {len(group)} "
            f"| {100 * max(row['gap'] for row in group):.2g} % "
            f"| {max(row['seconds'] for row in group):.0f} s | {' | '.join(worst)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stages", default="16,24,36")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--memory", default="0,5,10")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for stages in map(int, options.stages.split(",")):
        for percent in map(int, options.memory.split(",")):
            for seed in range(options.count):
                problem = cnn_chain(stages, seed)
                rows.append(measure(problem, percent, options.time_limit, options.workers))
                print(json.dumps(rows[-1]), file=sys.stderr)
                if options.output is not None:
                    write_json(options.output, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
