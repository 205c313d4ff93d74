"""Measured profiles of the zoo, on a CUDA device or on a simulated one; called by gpu.py.

    python benchmarks/gpu_profiles.py -o out/gpu/profiles.json --seconds 150

For each network: how long the step takes by the device's events, what the allocator gave out beside
what the problem counts, what the device saves that tensors without data do not foresee, and the
rates of the link alone, both ways at once, and while the step runs. The problems are written beside
the output, and so is what the card reaches, `card.toml`, for ``--hardware``. On a simulated device
durations are a stated model's, so that everything else runs from end to end without a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from offcert.core.errors import OffcertError
from offcert.core.platform import Kind
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.training_record import AllocatorPeaks
from offcert.runtime.device.cuda import versions
from offcert.runtime.hardware.files import write_hardware
from offcert.runtime.hardware.measured_card import measured_card
from offcert.runtime.profiling.profile import profile

HARDWARE = "v100-pcie"


@dataclass(frozen=True)
class Case:
    """A network of the zoo, and the shape of its input."""

    label: str
    model: str
    shape: str
    options: dict[str, Any] = field(default_factory=dict)


_GPT = {"layers": 12, "width": 768, "heads": 12, "vocabulary": 16_384}
CASES = (
    Case("GPT, 12 layers of 768, 8x512", "gpt", "8x512", _GPT),
    Case("ResNet-50, 64x3x224x224", "resnet50", "64x3x224x224"),
    Case("DenseNet-121, 32x3x224x224", "densenet121", "32x3x224x224"),
    Case("VGG-16, 32x3x224x224", "vgg16", "32x3x224x224"),
    Case("ResNet-18, 64x3x224x224", "resnet18", "64x3x224x224"),
)
SMALL = (
    Case("GPT, tiny, 2x16", "gpt-tiny", "2x16"),
    Case("ResNet-18, 2x3x64x64", "resnet18", "2x3x64x64"),
)


def measured(case: Case, simulated: bool) -> Problem:
    """Profile a network on the device at hand."""
    if not simulated:
        return profile(case.model, case.shape, options=case.options, measure=True)
    from offcert.runtime.simulated import SimulatedDevice

    device = SimulatedDevice(rate_out=Fraction(12), rate_back=Fraction(11), strict=True)
    return profile(
        case.model,
        case.shape,
        options=case.options,
        measure=True,
        device=device,
        hardware=HARDWARE,
    )


def row(case: Case, problem: Problem) -> dict[str, Any]:
    """Return the numbers of a problem that was profiled, by name."""
    trace, source = problem.trace, problem.source or {}
    found: dict[str, Any] = {
        "name": case.label,
        "operations": len(trace),
        "step_ns": sum(trace.durations),
        "peak_bytes": trace.peak_memory,
        "least_bytes": trace.least_memory,
        "workspace_bytes": max(operation.workspace for operation in trace.operations),
        "uncounted": source["uncounted"],
        "link": str(problem.platform.link),
        "bytes_per_second": [
            int(problem.platform.rate(kind) * 10**9) for kind in (Kind.OFFLOAD, Kind.PREFETCH)
        ],
        **source["measurement"],
    }
    told = found.pop("allocator", None)
    if told is not None:
        # Gradients are counted from the beginning: the step has a part of them at its peak.
        planned = trace.peak_memory + sum(source["uncounted"].values())
        peaks = AllocatorPeaks(0, told["peak_allocated"], told["peak_reserved"])
        found["allocation"] = peaks.beside(planned, planned)
    return found


def main() -> None:
    """Profile networks until the time is over, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150.0)
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    simulated = not torch.cuda.is_available()
    problems = options.output.parent / "problems"
    problems.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "device": {"device": "simulated", "torch": torch.__version__}
        if simulated
        else versions(torch.device("cuda", torch.cuda.current_device())),
        "profiles": [],
        "left_out": [],
    }
    write_hardware(options.output.parent / "card.toml", measured_card())
    for case in SMALL if simulated else CASES:
        if time.monotonic() > until:
            document["left_out"].append(case.label)
            continue
        begun = time.monotonic()
        try:
            problem = measured(case, simulated)
            write_problem(problems / f"{case.model}.json", problem)
            document["profiles"].append(row(case, problem))
            said = f"{document['profiles'][-1]['step_ns'] / 1e6:.3f} ms"
        except OffcertError as error:
            document["profiles"].append({"name": case.label, "error": str(error)})
            said = str(error)
        print(f"{case.label}: {said} ({time.monotonic() - begun:.0f} s)", flush=True)
        options.output.write_text(json.dumps(document, indent=2) + "\n")
        gc.collect()
        if not simulated:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
