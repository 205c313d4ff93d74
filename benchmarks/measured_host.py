"""Follow plans for a machine that was measured, on a simulated device behind the host at hand.

    python benchmarks/measured_host.py FOLDER [--networks resnet50,gpt2] [--time-limit SECONDS]

FOLDER holds problems that were profiled on one machine (`NETWORK-problem.json`), certificates for
them (`NETWORK-cert-….json`) and `measured.json`, with the milliseconds that the host took there for
a plain step (`host_ms`) and that the plans took. Each plan is followed on a simulated device:
operations take what was measured, transfers what the link's rates say, both ways at once included,
and the host what Python takes here. An operator's launch takes what the recorded host had left of a
plain step beside that. Inputs are tiny; what is moved counts as what the plan says.

Where the step saves other tensors on this machine's CPU than it did there (GPT-2: dropout's masks,
attention), it is captured here, takes the measured durations by the names of its operations, and is
certified anew, at a quarter of the memory: what it moves is smaller, and so are the link's rates.
Figures are milliseconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from measured_machine import on_measured_link, reading_of
from torch import nn
from torch.nn import functional

from offcert.certify.ladder import certify
from offcert.core.documents import read_json, write_json
from offcert.core.platform import Platform
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.questions.schedule.files import read_problem
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime import zoo
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware.bandwidth import retimed, retimed_network
from offcert.runtime.pairs.hosted import HostedSteps
from offcert.runtime.plan.step_plan import step_plans
from offcert.runtime.simulated import RealHost
from offcert.runtime.streaming.step_events import forecast

_NS_PER_MS = 10**6
_QUARTER = Fraction(1, 4)


@dataclass(frozen=True)
class Case:
    """A network that was measured.

    Attributes
    ----------
    step : callable
        Makes its step with tiny inputs.
    smaller : int or None
        By how much its tensors are smaller than those that were measured, where the step is to be
        captured here.
    host_ms : float or None
        Milliseconds of the recorded host for a plain step, where the rows do not say so.
    """

    step: Callable[[], TrainingStep]
    smaller: int | None = None
    host_ms: float | None = None


def _resnet50() -> TrainingStep:
    def run(model: nn.Module, batch: Any) -> torch.Tensor:
        inputs, labels = batch
        return functional.cross_entropy(model(inputs), labels)

    batch = torch.randn(2, 3, 32, 32), torch.tensor([1, 2])
    return TrainingStep(zoo.build("resnet50", classes=1000), run, batch)


def _gpt2() -> TrainingStep:
    from transformers import GPT2Config, GPT2LMHeadModel

    # Attention without dropout has a kernel on the CPU, too, that keeps no scores.
    sizes = {"n_layer": 24, "n_embd": 1024, "n_head": 16, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False))

    def run(model: nn.Module, batch: Any) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(input_ids=batch, labels=batch).loss

    return TrainingStep(model, run, torch.zeros(2, 8, dtype=torch.int64), tensors="real")


CASES = {
    "resnet50": Case(_resnet50),
    # Its own host was kept waiting by the driver's queue: GPT-2 small, with half as many layers,
    # took 38.0 ms.
    # Of 16 x 1,024 tokens it has 16 here.
    "gpt2": Case(_gpt2, 1024, 76.0),
}


def captured_here(
    measured: Problem, step: TrainingStep, platform: Platform, smaller: int
) -> Problem:
    """Return the problem of a step that is captured here, with durations measured elsewhere."""
    found = capture(step)
    assert found.network is not None
    names = [operation.name for operation in found.trace.operations]
    operations = measured.plain().trace.operations
    assert [operation.name for operation in operations] == names
    durations, workspaces = zip(
        *((each.duration, each.workspace) for each in operations), strict=True
    )
    network = retimed_network(found.network, retimed(found.trace, durations, workspaces))
    source = {"clock": "modules", "capture": found.to_json()}
    fields = ("bandwidth", "prefetch_bandwidth", "busy_bandwidth", "busy_prefetch_bandwidth")
    rates = {name: getattr(platform, name) for name in fields}
    slower = {name: rate / smaller for name, rate in rates.items() if rate is not None}
    problem = replace(
        measured,
        network=network,
        platform=replace(platform, **slower),
        source=source,
        uncertainty=None,
        recompute=Recompute.ANY,
    )
    return problem.with_memory(problem.memory_at(_QUARTER))


def row_of(
    certificate: Certificate, platform: Platform, case: Case, recorded_ms: float
) -> dict[str, Any]:
    """Return milliseconds of a certificate's plan, forecast and behind the host at hand."""
    step, host = case.step(), RealHost()
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


def _rows(folder: Path, name: str, seconds: float) -> list[dict[str, Any]]:
    rows, case = read_json(folder / "measured.json")["rows"], CASES[name]
    took = {row["way"]: row["ms"] for row in rows}
    plain = [r["host_ms"] for r in rows if r["network"].startswith(name) and r["way"] == "plain"]
    recorded = case.host_ms if case.host_ms is not None else plain[0]
    paths = sorted(folder.glob("*-problem.json"))
    readings = [reading_of(read_problem(path).source or {}) for path in paths]
    measured = read_problem(folder / f"{name}-problem.json")
    platform = on_measured_link(measured.platform, reading_of(measured.source or {}), readings)
    if case.smaller is not None:
        problem = captured_here(measured, case.step(), platform, case.smaller)
        certificate = certify(problem, time_limit=seconds)
        row = row_of(certificate, problem.platform, case, recorded)
        bound = certificate.result.proved_bound
        bound_ms = None if bound is None else bound / _NS_PER_MS
        return [{"plan": f"{name}, captured here", "bound": bound_ms, **row}]
    found = []
    for path in sorted(folder.glob(f"{name}-cert-*.json")):
        row = row_of(read_certificate(path), platform, case, recorded)
        found.append({"plan": path.name, "measured_there": took.get(path.name), **row})
    return found


def main() -> None:
    """Print a line for each plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", default=",".join(CASES))
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in options.networks.split(","):
        for row in _rows(options.folder, name, options.time_limit):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json is not None:
        write_json(options.json, {"torch": torch.__version__, "rows": rows})


if __name__ == "__main__":
    main()
