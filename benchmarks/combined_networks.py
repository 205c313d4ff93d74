"""The combined paper's dynamic program on networks as chains, beside certified joint plans.

    python benchmarks/combined_networks.py vgg19 resnet50 densenet121 --time-limit 20 -o out/c.json

Stages are the longest that a single value separates. Limits lie between the most that an operation
takes by itself and the peak. The program has 50 slots and the paper's operations. Its decisions are
timed with transfers that pause and turn at the loss, as the paper has them, and with whole ones, as
the problem has them, all out before all back. So is the joint plan, which is certified: its
schedule is checked, and its bound verified.
"""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from offcert.certification.joint_methods import warm_combined
from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.core.units import Units
from offcert.heuristics.combined.search import combined_plan
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime import zoo
from offcert.runtime.hardware import hardware
from offcert.runtime.workloads.workload import Workload
from offcert.verification.document import verify
from papers.combined.checkpoints import profile_checkpoints
from papers.combined.turned import fluid

Row = dict[str, Any]

NETWORKS = ("vgg19", "resnet50", "resnet152", "densenet121", "gpt")
INPUTS = {"gpt": (8, 256), "inception_v3": (32, 3, 299, 299)}
DEFAULT_INPUT = (32, 3, 224, 224)
# How far the limit is from the least that there is for any plan, on the way to the peak.
PARTS = "1/12,1/6,1/3"
SLOTS = 50


def problems(name: str, options: argparse.Namespace) -> list[tuple[str, Problem]]:
    """Return a network's chain at every limit."""
    shape = INPUTS.get(name, DEFAULT_INPUT)
    if options.input:
        shape = tuple(map(int, options.input.split("x")))
    model = hardware(options.hardware, peak=True)
    with torch.device("meta"):
        module = zoo.build(name)
    chain = profile_checkpoints(module, Workload(name, shape), model)
    bandwidth = Fraction(model.link_bandwidth, 10**9)
    network = chain.network()
    least, peak = max(network.own_memory), network.trace().peak_memory
    return [
        (
            part,
            Problem(
                name,
                chain,
                Platform(least + int((peak - least) * Fraction(part)), bandwidth),
                units=Units("ns", "B"),
                recompute=Recompute.ANY,
            ),
        )
        for part in options.memory.split(",")
    ]


def measure(problem: Problem, options: argparse.Namespace) -> Row:
    """Return the makespans of the paper's program, and objective and bound of a certificate."""
    row: Row = {
        "network": problem.name,
        "stages": len(problem.trace) // 2,
        "memory": problem.platform.memory,
        "peak": problem.trace.peak_memory,
        "compute_time": problem.trace.compute_time,
        "whole": None,
        "pausing": None,
    }
    began = time.process_time()
    with suppress(MethodError):
        plan = combined_plan(problem, SLOTS)
        row["combined_seconds"] = time.process_time() - began
        row["pausing"] = fluid(plan, problem).makespan
        row["whole"] = plan.atomic(problem).makespan
    began = time.process_time()
    certificate = certify(
        problem, time_limit=options.time_limit, workers=options.workers, seed=options.seed
    )
    row["cpu_seconds"] = time.process_time() - began
    verification = verify(certificate.to_json())
    assert verification.valid, verification.faults + verification.unverified
    result = certificate.result
    row |= {
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "status": str(result.status),
        "gap": None if result.objective is None else result.gap,
    }
    return row


def shown(row: Row) -> str:
    """Return a row as a line of a Markdown table."""
    whole = row["compute_time"]

    def ratio(ticks: int | None) -> str:
        return "no plan" if ticks is None else f"{ticks / whole:.3f}"

    cells = [
        f"{row['network']}, {row['stages']} stages",
        f"{row['limit']}, {row['memory'] / row['peak']:.0%} of the peak",
        ratio(row["pausing"]),
        ratio(row["whole"]),
        ratio(row["objective"]),
        ratio(row["lower_bound"]),
        "" if row["gap"] is None else f"{row['gap']:.1%}",
    ]
    return f"| {' | '.join(cells)} |"


HEADER = (
    "| network | limit | combined, pausing | combined, whole | ours, whole | proved | gap |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
)


def summary(rows: list[Row]) -> str:
    """Return in how many rows ours is shorter than the program's, with whole transfers."""
    found = [row for row in rows if row["objective"] is not None]
    both = [row for row in found if row["whole"] is not None]
    shorter = sum(row["objective"] < row["whole"] for row in both)
    longer = sum(row["objective"] > row["whole"] for row in both)
    return (
        f"ours: shorter on {shorter} of {len(both)}, longer on {longer}; "
        f"a plan where the program has none: {len(found) - len(both)}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, print the table, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--input", help="by default what suits the network")
    parser.add_argument("--hardware", default="v100-pcie")
    parser.add_argument("--memory", default=PARTS, help="parts of the way to the peak")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    warm_combined()
    rows: list[Row] = []
    print(HEADER)
    for name in options.networks:
        for part, problem in problems(name, options):
            rows.append(measure(problem, options) | {"limit": part})
            print(shown(rows[-1]), flush=True)
            if options.output is not None:
                write_json(options.output, rows)
    print(f"\n{summary(rows)}")


if __name__ == "__main__":
    main()
