"""Capture and certify a step of many layers and micro-batches; print where the time goes.

    python benchmarks/deep_steps.py --layers 128 --micro 8 --memory 40% --time-limit 200

The step is Llama-3.2-1B's with another number of layers, 2,048 tokens a micro-batch, in bfloat16,
on an H100 (SXM): gradients of all micro-batches are added up. Times are CPU seconds of this
process, memory is the most that it has taken. ``--time-limit 0`` certifies nothing.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from offcert import certify, profile
from offcert.questions.schedule.problem import Problem, parse_memory
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.workloads.configured import training_step
from offcert.runtime.workloads.shapes import SHAPES


def step_of(layers: int, micro: int) -> TrainingStep:
    """Return a step that trains on several batches before the optimiser's step."""
    config = {**SHAPES["llama-3.2-1b"].config, "num_hidden_layers": layers}
    with torch.device("meta"):
        one = training_step(config, 1, 2048)
    make: Callable[[], Any] = one.batch

    def run(model: torch.nn.Module, batches: list[Any]) -> None:
        for batch in batches:
            loss = one.run(model, batch)
            assert loss is not None
            (loss / micro).backward()

    return replace(one, run=run, batch=lambda: [make() for _ in range(micro)])


def said(problem: Problem, since: float) -> str:
    """Return the seconds of a capture, and the memory of the process so far, for people."""
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"{problem.name}: {len(problem.trace):,} operations, {len(problem.trace.gaps):,} gaps, "
        f"captured in {time.process_time() - since:.0f} s, {taken:.1f} GiB"
    )


def main() -> None:
    """Run the command line's choices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--layers", type=int, default=128)
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--memory", default="40%")
    parser.add_argument("--time-limit", type=float, default=600.0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    since = time.process_time()
    name = f"{options.layers} layers, {options.micro} micro-batches"
    step = step_of(options.layers, options.micro)
    problem = profile(step, hardware="h100-sxm", name=name, optimiser="adamw", recompute="none")
    print(said(problem, since), flush=True)
    if not options.time_limit:
        return
    problem = problem.with_memory(parse_memory(options.memory, problem))
    begun = time.monotonic()
    found = certify(problem, time_limit=options.time_limit, workers=options.workers).result
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    slower = (found.objective or 0) / problem.trace.compute_time
    print(
        f"{found.status}, {slower:.3f} times computing, gap {100 * found.gap:.2f} %, after "
        f"{time.monotonic() - begun:.0f} s, {taken:.1f} GiB"
    )


if __name__ == "__main__":
    main()
