"""Proved gaps of training steps with many equal layers, and of ResNet-50, after a minute each.

    python benchmarks/layer_gaps.py --time-limit 60 -o out/layer-gaps.json

Each step is captured on fake tensors, from the public shape of its model, and certified in turn
with `recompute="any"`. A row says how long the best plan takes and what is proved to be necessary,
both as multiples of the computing time, and the gap between them. As other work on the same
machine makes a minute shorter, it says as well how many seconds of processor time were used.
``--only`` takes patterns of names; ``--again FILE`` prints the table of what was written.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from offcert.certification.ladder import certify
from offcert.core.documents import read_json, write_json
from offcert.core.units import Units, format_size, parse_size
from offcert.questions.schedule.problem import Problem, Recompute

FORMAT = "offcert-layer-gaps-run"
BYTES = Units("ns", "B")


class Step(NamedTuple):
    """A training step, and the limits at which it is asked for; the goal is a part of the step."""

    model: str
    batch: int
    sequence: int
    hardware: str
    limits: tuple[str, ...]
    goal: float


STEPS = (
    Step("llama-3.2-1b", 4, 2048, "rtx-4090", ("14GiB", "12GiB"), 0.003),
    Step("llama-3.1-8b", 1, 4096, "h100-sxm", ("16GiB", "10GiB", "7GiB"), 0.005),
    Step("llama-3.1-70b", 1, 8192, "h100-sxm", ("60GiB", "30GiB"), 0.01),
    Step("resnet50", 32, 0, "v100-pcie", ("1/6",), 0.05),
)


def problem_of(step: Step) -> Problem:
    """Return the problem of a step, captured on fake tensors."""
    import torch

    from offcert.runtime.profiling.profile import profile
    from offcert.runtime.workloads.configured import training_step

    if not step.sequence:
        problem = profile(step.model, f"{step.batch}x3x224x224", hardware=step.hardware)
    else:
        with torch.device("meta"):
            made = training_step(step.model, batch=step.batch, sequence=step.sequence)
        problem = profile(made, hardware=step.hardware, optimiser="adamw", name=step.model)
    return replace(problem, recompute=Recompute.ANY)


def bytes_of(problem: Problem, limit: str) -> int:
    """Return the bytes of a limit: a size, or a part of the peak."""
    if "/" in limit:
        return problem.trace.peak_memory // int(limit.partition("/")[2])
    return int(parse_size(limit))


def measure(step: Step, problem: Problem, limit: str, time_limit: float) -> dict[str, Any]:
    """Return the row of one limit."""
    limited = problem.with_memory(bytes_of(problem, limit))
    begun = time.process_time()
    result = certify(limited, time_limit=time_limit).result
    return {
        "model": step.model,
        "batch": step.batch,
        "sequence": step.sequence,
        "hardware": step.hardware,
        "memory": limited.platform.memory,
        "computing": problem.trace.compute_time,
        "objective": result.objective,
        "bound": result.proved_bound,
        "goal": step.goal,
        "processor": time.process_time() - begun,
    }


def gap(row: dict[str, Any]) -> float:
    """Return the part of the best plan that lies above the bound."""
    if row["objective"] is None:
        return float("inf")
    return float((row["objective"] - row["bound"]) / row["objective"])


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| step | card | limit | step / computing | bound / computing | gap | goal | processor |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        shape = f"{row['batch']} × {row['sequence']:,}" if row["sequence"] else f"{row['batch']}"
        plan = "–" if row["objective"] is None else f"{row['objective'] / row['computing']:.3f}"
        lines.append(
            f"| {row['model']}, {shape} | {row['hardware']} | {format_size(row['memory'], BYTES)} "
            f"| {plan} | {row['bound'] / row['computing']:.3f} | {100 * gap(row):.2f} % "
            f"| {100 * row['goal']:.1f} % | {row['processor']:.0f} s |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line's choices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="patterns of models' names")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each limit")
    parser.add_argument("--again", type=Path, help="print what such a file says; run nothing")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    if options.again is not None:
        print(table(read_json(options.again)["rows"]))
        return
    rows: list[dict[str, Any]] = []
    for step in STEPS:
        if not any(fnmatchcase(step.model, each) for each in options.only.split(",")):
            continue
        problem = problem_of(step)
        for limit in step.limits:
            rows.append(measure(step, problem, limit, options.time_limit))
            if options.output is not None:
                write_json(options.output, {"format": FORMAT, "rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
