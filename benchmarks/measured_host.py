"""Follow plans for a machine that was measured, on a simulated device behind the host at hand.

    python benchmarks/measured_host.py FOLDER [--networks resnet50]

FOLDER holds problems that were profiled on one machine (`NETWORK-problem.json`), certificates for
them (`NETWORK-cert-….json`) and `measured.json`, with the milliseconds that the host took there for
a plain step (`host_ms`) and that the plans took. Each plan is followed on a simulated device:
operations take what was measured, transfers what the link's rates say, both ways at once included,
and the host what Python takes here. An operator's launch takes what the recorded host had left of a
plain step beside that. Inputs are tiny; what is moved counts as what the plan says. Figures are
milliseconds.

Only networks that save the same tensors on the CPU as on CUDA can be followed: not GPT-2, with the
masks of its dropout and its attention.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measured_machine import on_measured_link, reading_of
from torch import nn
from torch.nn import functional

from offcert.core.documents import read_json, write_json
from offcert.core.platform import Platform
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.questions.schedule.files import read_problem
from offcert.runtime import zoo
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.pairs.train_device import HostedSteps
from offcert.runtime.plan.step_plan import step_plans
from offcert.runtime.simulated import RealHost
from offcert.runtime.streaming.step_events import forecast

_NS_PER_MS = 10**6


def _resnet50() -> TrainingStep:
    def run(model: nn.Module, batch: Any) -> torch.Tensor:
        inputs, labels = batch
        return functional.cross_entropy(model(inputs), labels)

    batch = torch.randn(2, 3, 32, 32), torch.tensor([1, 2])
    return TrainingStep(zoo.build("resnet50", classes=1000), run, batch)


# Steps with tiny inputs.
CASES: dict[str, Callable[[], TrainingStep]] = {"resnet50": _resnet50}


def row_of(
    certificate: Certificate, platform: Platform, step: TrainingStep, recorded_ms: float
) -> dict[str, Any]:
    """Return milliseconds of a certificate's plan, forecast and behind the host at hand."""
    host = RealHost()
    steps = HostedSteps(platform, host)
    durations = certificate.problem.plain().trace.durations
    plain = steps.plain(step, durations)
    host.recorded(round(recorded_ms * _NS_PER_MS), plain.python, plain.operators)
    [plan] = step_plans(certificate, None, streams=True)
    plan = replace(plan, problem=replace(plan.problem, platform=platform))
    assert plan.timetable is not None
    alone = forecast(plan.problem, plan.timetable).makespan
    found, context = steps.planned(step, plan)
    times = {
        "forecast": alone,
        "hosted": found.time,
        "idle": found.time - alone,
        "host": found.host,
        "python": found.python,
        "plain_python": plain.python,
        "launch": host.launch,
    }
    return {name: ns / _NS_PER_MS for name, ns in times.items()} | {"steps": dict(context.steps)}


def _rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    rows = read_json(folder / "measured.json")["rows"]
    took = {row["way"]: row["ms"] for row in rows}
    [recorded] = [
        row["host_ms"] for row in rows if row["network"].startswith(name) and row["way"] == "plain"
    ]
    paths = sorted(folder.glob("*-problem.json"))
    readings = [reading_of(read_problem(path).source or {}) for path in paths]
    measured = read_problem(folder / f"{name}-problem.json")
    platform = on_measured_link(measured.platform, reading_of(measured.source or {}), readings)
    for path in sorted(folder.glob(f"{name}-cert-*.json")):
        row = row_of(read_certificate(path), platform, CASES[name](), recorded)
        yield {"plan": path.name, "measured_there": took.get(path.name), **row}


def main() -> None:
    """Print a line for each plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", default=",".join(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in options.networks.split(","):
        for row in _rows(options.folder, name):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json is not None:
        write_json(options.json, {"torch": torch.__version__, "rows": rows})


if __name__ == "__main__":
    main()
