"""The cost of training under a plan on the CPU: a step beside a plain one, as ratios.

    python benchmarks/overhead.py -o out/overhead.json

The variants take turns, step by step, on one thread; the figure is the median of the ratios of a
planned step to the plain one beside it, in CPU time of the process. The empty plan moves nothing;
the other one is certified for a quarter of the memory range, and really copies its bytes to a
memory-mapped file and back.

A second table says what the proof of recomputation costs: all blocks of the network run again, and
a step is put beside one under PyTorch's own checkpointing of the same blocks, which proves nothing.
A rehearsal is what the first planned step is; all others are checked by samples.

A third table says what the first steps cost where plans are made on the way, in seconds of the
process's CPU time, the kernels of the search included that are loaded then; and which step was the
first to follow a certified plan, found by another process, if a step takes a tenth of a second. The
networks have many operations and little to compute.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
import warnings
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.runtime.follow.offload import Offload, follow
from offcert.runtime.profiling.profile import profile
from offcert.runtime.segments.alone import segmented
from offcert.runtime.segments.placed import PlacedProgram, PlacedSegment
from offcert.runtime.watch.guard import OffloadWarning
from offcert.runtime.workloads.standard_step import standard_step
from offcert.runtime.workloads.workload import Workload
from offcert.training import offload

HARDWARE = "v100-pcie"


@dataclass(frozen=True)
class Case:
    """A network of the zoo, the shape of its input, and where its blocks are."""

    label: str
    model: str
    shape: tuple[int, ...]
    containers: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case("ResNet-18, 8×3×64²", "resnet18", (8, 3, 64, 64), tuple(f"layer{i}" for i in range(1, 5))),
    Case(
        "GPT, 4 layers, width 128, 8×64",
        "gpt",
        (8, 64),
        ("h",),
        {"layers": 4, "width": 128, "heads": 4, "vocabulary": 256},
    ),
)


FIRST = (
    Case(
        "GPT, 12 layers, width 64, 2×32",
        "gpt",
        (2, 32),
        ("h",),
        {"layers": 12, "width": 64, "heads": 4, "vocabulary": 256},
    ),
    Case("ResNet-50, 2×3×32²", "resnet50", (2, 3, 32, 32), ()),
)
# Seconds of a step there, and steps after which no certified plan is waited for. Arbitrary.
PACE, PATIENCE = 0.1, 300


class Variant:
    """A copy of the network that is trained, in a context or plainly."""

    def __init__(
        self,
        model: nn.Module,
        workload: Workload,
        context: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._step = standard_step(model, workload)
        self._optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
        self._batch = self._step.make_batch()
        self.context = context

    def run(self) -> float:
        """Take one step; return the seconds of CPU time of its forward and backward pass."""
        begun = time.process_time()
        self._step.execute(self._batch)
        seconds = time.process_time() - begun
        self._optimiser.step()
        self._optimiser.zero_grad()
        return seconds


def measure(case: Case, steps: int, time_limit: float) -> dict[str, Any]:
    """Return the ratios of one case."""
    problem = profile(
        case.model, case.shape, options=case.options, hardware=HARDWARE, recompute="none"
    )
    quarter = problem.with_memory(problem.memory_at(Fraction(1, 4)))
    schedule = certify(quarter, time_limit=time_limit).result.schedule
    assert schedule is not None
    plans: dict[str, tuple[Problem, Plan | Schedule]] = {
        "empty plan": (problem, Plan()),
        "plan at 25 %": (quarter, schedule),
    }
    workload = Workload(case.model, case.shape, case.options)
    model = workload.load()
    assert isinstance(model, nn.Module)
    variants = {"plain": Variant(model, workload)}
    for label, (limited, plan) in plans.items():
        twin = copy.deepcopy(model)
        variants[label] = Variant(twin, workload, follow(twin, plan, limited))
    ratios = side_by_side(variants, steps)
    planned = variants["plan at 25 %"].context
    assert isinstance(planned, Offload)
    report = planned.report
    assert report.planned, report.deviation
    return {
        "network": case.label,
        "operations": len(problem.trace),
        "steps": steps,
        "ratios": ratios,
        "saved_bytes": sum(t.size for t in problem.trace.tensors if t.evictable),
        "moved_bytes": report.offloaded_bytes,
        "moved_storages": sum(map(len, planned.step_plans[0].parts.values())),
    }


def measure_again(case: Case, steps: int) -> dict[str, Any]:
    """Return the ratios of steps in which all blocks run again to PyTorch's checkpointing."""
    workload = Workload(case.model, case.shape, case.options)
    model = workload.load()
    assert isinstance(model, nn.Module)
    blocks = [
        f"{container}.{name}"
        for container in case.containers
        for name, _ in model.get_submodule(container).named_children()
    ]
    program = PlacedProgram(PlacedSegment(block) for block in blocks)
    twins = [copy.deepcopy(model) for _ in range(2)]
    for block in map(model.get_submodule, blocks):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
    variants = {
        "PyTorch": Variant(model, workload),
        "rehearsal": Variant(twins[0], workload, segmented(twins[0], program, verify_every=1)),
        "samples": Variant(twins[1], workload, segmented(twins[1], program)),
    }
    ratios = side_by_side(variants, steps)
    return {"network": case.label, "blocks": len(blocks), "steps": steps, "ratios": ratios}


def measure_first(case: Case, time_limit: float) -> dict[str, Any]:
    """Return the CPU time of the first steps under plans that are made on the way."""
    workload = Workload(case.model, case.shape, case.options)
    model = workload.load()
    assert isinstance(model, nn.Module)
    variant = Variant(model, workload)
    plain = statistics.median(variant.run() for _ in range(5))
    training = offload(model, "auto", memory="25%", time_limit=time_limit)
    seconds, followed = [], None
    with training, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while followed is None and len(seconds) < PATIENCE:
            begun = time.monotonic()
            seconds.append(variant.run())
            time.sleep(max(0.0, PACE - (time.monotonic() - begun)))
            if training.certificates:
                followed = len(seconds) + 1
    return {
        "network": case.label,
        "plain": plain,
        "seconds": seconds[:6],
        "followed": followed,
        "kinds": dict(training.steps),
    }


def side_by_side(variants: dict[str, Variant], steps: int) -> dict[str, float]:
    """Return the median ratio of every variant's steps to those of the first beside them."""
    seconds: dict[str, list[float]] = {label: [] for label in variants}
    # A first look at the command needs no more steps that do not count than those that do.
    warming = min(3, steps)
    with ExitStack() as contexts, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", OffloadWarning)
        for variant in variants.values():
            if variant.context is not None:
                contexts.enter_context(variant.context)
        for _ in range(steps + warming):
            for label, variant in variants.items():
                seconds[label].append(variant.run())
    plain = seconds.pop(next(iter(variants)))[warming:]
    return {
        label: statistics.median(a / b for a, b in zip(times[warming:], plain, strict=True))
        for label, times in seconds.items()
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| network | empty plan | plan at 25 % | moved, of what is saved |"]
    lines.append("| --- | ---: | ---: | ---: |")
    for row in rows:
        ratios = row["ratios"]
        share = row["moved_bytes"] / row["saved_bytes"]
        lines.append(
            f"| {row['network']} | {ratios['empty plan']:.3f} | {ratios['plan at 25 %']:.3f} "
            f"| {row['moved_bytes'] / 2**20:.1f} MiB ({share:.0%}) in {row['moved_storages']} "
            "storages |"
        )
    return "\n".join(lines)


def table_again(rows: list[dict[str, Any]]) -> str:
    """Return the rows of what runs again as a Markdown table."""
    lines = ["| network, all blocks run again | rehearsal | later steps |", "| --- | ---: | ---: |"]
    for row in rows:
        ratios = row["ratios"]
        label = f"{row['network']}: {row['blocks']} blocks"
        lines.append(f"| {label} | {ratios['rehearsal']:.3f} | {ratios['samples']:.3f} |")
    return "\n".join(lines)


def table_first(rows: list[dict[str, Any]]) -> str:
    """Return the rows of the first steps as a Markdown table."""
    lines = ["| network, plans on the way | plain | steps 1 to 6 | certified plan from |"]
    lines.append("| --- | ---: | ---: | ---: |")
    for row in rows:
        steps = " ".join(f"{each:.2f}" for each in row["seconds"])
        followed = "never" if row["followed"] is None else f"step {row['followed']}"
        lines.append(f"| {row['network']} | {row['plain']:.3f} s | {steps} s | {followed} |")
    return "\n".join(lines)


def main(
    arguments: list[str] | None = None,
    cases: tuple[Case, ...] = CASES,
    first: tuple[Case, ...] = FIRST,
) -> int:
    """Measure every case, print the table and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--time-limit", type=float, default=3.0, help="seconds for the plan")
    parser.add_argument("-o", "--output")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [measure(case, options.steps, options.time_limit) for case in cases]
    print(table(rows))
    again = [measure_again(case, options.steps) for case in cases]
    print(f"\n{table_again(again)}")
    begun = [measure_first(case, options.time_limit) for case in first]
    print(f"\n{table_first(begun)}")
    document = {"torch": torch.__version__, "rows": rows, "again": again, "first": begun}
    if options.output:
        write_json(options.output, document)
    else:
        print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
