"""Parts of `make gpu` that train, each in a process of its own; called by gpu.py.

    python benchmarks/gpu_parts.py PART --folder out/gpu --seconds 200

On a machine without a card they run on the simulated device, and what is compiled on the CPU.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

# Before CUDA begins: else products are not the same every time.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from gpu_bracket import bracket
from gpu_distributed import distributed
from gpu_meter import Bench, same
from gpu_networks import NETWORKS
from gpu_part import Part
from gpu_profiles import certificates, profiles
from gpu_rows import CHECKPOINTED, JOINT, MOVING, PLAIN
from gpu_small import small
from runtime_ways import Checkpointed, Plain, SaveOnHost, Way

import offcert
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.questions.schedule.carried import launch_times
from offcert.questions.schedule.files import read_problem
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.runtime.follow.offload import Offload, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.hardware.choice import at_hand
from offcert.runtime.streaming.step_events import forecast

# What the compiler may save of what it would save by itself: the first that keeps to the limit.
BUDGETS = (0.5, 0.3, 0.15)


class SaveOnCpu(SaveOnHost):
    """Saves every tensor on the host: PyTorch's own way where there is a card."""

    def context(self, model: Any, device: Any, counter: Any) -> Any:
        """Return the context in which saved tensors are on the host."""
        if device.tensors.type == "cuda":
            return torch.autograd.graph.save_on_cpu(pin_memory=True)
        return super().context(model, device, counter)


WAYS: dict[str, Callable[[], Way]] = {
    PLAIN: Plain,
    CHECKPOINTED: Checkpointed,
    "save_on_cpu": SaveOnCpu,
}


def ways(part: Part) -> None:
    """Measure the ways of others, each at its own peak."""
    for network in part.wanted(*WAYS):
        bench = Bench(network)
        plain = bench.gradients(bench.step.execute)
        for name in part.missing(network, WAYS):
            with part.row(network, name) as found:
                found["device"] = bench.name
                problem = read_problem(part.problem(network)) if bench.simulated else None
                found |= _measured(bench, WAYS[name](), problem, plain)
            bench.free()


def _measured(
    bench: Bench, way: Way, problem: Problem | None, plain: list[torch.Tensor]
) -> dict[str, Any]:
    """Return the columns of a way that needs no plan."""
    device = bench.device() if problem is None else bench.device(problem.platform)
    with bench.counting() as counter, way.context(bench.model, device, counter) as saving:

        def once(batch: Any) -> None:
            with nullcontext() if problem is None else bench.clock(problem, device):
                bench.step.execute(batch)

        def after() -> None:
            if saving is not None:
                saving.end_step()

        found = bench.repeat(once, device, counter, after)
        found["bitwise"] = same(plain, bench.gradients(once))
        after()
    return found | {"note": way.source}


def train(part: Part) -> None:
    """Follow the certificates for the peak of checkpointing, wherever they were made."""
    for network in part.wanted(JOINT, MOVING):
        bench = Bench(network)
        plain = bench.gradients(bench.step.execute)
        for kind in part.missing(network, (JOINT, MOVING)):
            certificate = _certificate(part, network, kind)
            if certificate is not None:
                with part.row(network, kind) as found:
                    found |= _said(certificate) | {"device": bench.name}
                    found |= _followed(bench, certificate, plain)
                bench.free()


def _certificate(part: Part, network: str, kind: str) -> Certificate | None:
    path = part.certificate(network, kind)
    if not path.exists():
        print(f"{network}, {kind}: no certificate; PART=certificates makes it", flush=True)
        return None
    return read_certificate(path)


def _said(certificate: Certificate) -> dict[str, Any]:
    """Return the columns that a certificate says."""
    result = certificate.result
    return {
        "limit": certificate.problem.platform.memory,
        "forecast_ms": None if result.objective is None else result.objective / 1e6,
        "bound_ms": None if result.proved_bound is None else result.proved_bound / 1e6,
    }


def _followed(bench: Bench, certificate: Certificate, plain: list[torch.Tensor]) -> dict[str, Any]:
    """Return the columns that training under a certificate has."""
    device = bench.device(certificate.problem.platform)
    chosen: dict[str, Any] = {}
    if bench.simulated:
        chosen = {"device": device, "timed": True, "count": True}
    begun = time.perf_counter()
    with follow(bench.model, certificate, options=FollowOptions(**chosen)) as training:
        start = 1000 * (time.perf_counter() - begun)
        found = bench.repeat(bench.step.execute, device)
        report, counted = training.report, Counter(training.steps)
        found["bitwise"] = same(plain, bench.gradients(bench.step.execute))
    if bench.simulated:
        found["peak_allocated"] = report.peak
    return found | {
        "start_ms": start,
        "pinning_ms": bench.pinning_ms(report.arena_bytes),
        "hosted_ms": _hosted(training, certificate),
        "planned": counted["planned"],
        "steps": counted.total(),
        "note": report.deviation or "",
    }


def _hosted(training: Offload, certificate: Certificate) -> float | None:
    """Return the forecast in which no operation ends before the host has handed it over."""
    [made] = training.step_plans
    launches = launch_times(certificate.problem, certificate.result.execution)
    if launches is None or made.timetable is None or len(launches) != len(made.problem.trace):
        return None
    return forecast(made.problem, made.timetable, launches=launches).makespan / 1e6


COMPILED, BUDGET, GRAPHS = "compiled", "memory budget", "compiled graphs"
# Seconds of searching for a plan of that problem, which is made where it is followed. Arbitrary.
_SEARCH = 20


def compiled(part: Part) -> None:
    """Compile plainly, with PyTorch's memory budget at the peak of checkpointing, and by a plan."""
    for network in part.wanted(GRAPHS, BUDGET, COMPILED):
        bench = Bench(network)
        for way in part.missing(network, (GRAPHS, BUDGET, COMPILED)):
            certificate = _certificate(part, network, JOINT)
            if certificate is None:
                break
            with part.row(network, way) as found:
                found["device"] = "cpu" if bench.simulated else bench.name
                found["limit"] = certificate.problem.platform.memory
                if way == GRAPHS:
                    found |= _compiled_ours(bench, _of_graphs(bench, found["limit"]))
                elif way == BUDGET:
                    found |= _budget(bench, certificate.problem.platform.memory)
                else:
                    found |= _compiled(bench, _plainly(bench))
            torch._dynamo.reset()
            bench.free()


def _plainly(bench: Bench) -> Any:
    # On the CPU kernels would take minutes to be made; graphs are divided in the same way.
    kind = {"backend": "aot_eager_decomp_partition"} if bench.simulated else {}
    return torch.compile(bench.model, **kind)


def _compiled(bench: Bench, model: Any) -> dict[str, Any]:
    """Return the columns of a compiled model; its first step compiles."""
    step = replace(bench.step, model=model)
    return bench.repeat(step.execute, None if bench.simulated else bench.device())


def _of_graphs(bench: Bench, limit: int) -> Certificate:
    """Return a certificate of the graphs that compiling makes of a step on this device."""
    card = at_hand() or "h100-sxm"
    problem = offcert.profile(bench.step, clock="graphs", hardware=card, memory="100%")
    least = max(limit, problem.least_memory)
    return offcert.certify(problem.with_memory(min(least, problem.peak_memory)), time_limit=_SEARCH)


def _budget(bench: Bench, limit: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for budget in BUDGETS:
        torch._dynamo.reset()
        with torch._functorch.config.patch(activation_memory_budget=budget):
            found = _compiled(bench, _plainly(bench)) | {"note": f"budget {budget}"}
        peak = found.get("peak_allocated")
        if peak is None or peak <= limit:
            return found
    return found | {"note": f"{found['note']}: peak above the limit"}


def _compiled_ours(bench: Bench, certificate: Certificate) -> dict[str, Any]:
    """Return the columns of compiling by a plan, and whether bits are those of no plan."""
    backend = offcert.backend(certificate)
    with warnings.catch_warnings():
        # What is not carried out is in the note.
        warnings.simplefilter("ignore")
        model = torch.compile(bench.model, backend=backend)
        found = _compiled(bench, model)
        step = replace(bench.step, model=model)
        ours = bench.gradients(step.execute)
        torch._dynamo.reset()
        nothing = offcert.backend(Plan(), certificate.problem.with_memory("100%"))
        step = replace(bench.step, model=torch.compile(bench.model, backend=nothing))
        found["bitwise"] = same(ours, bench.gradients(step.execute))
    reports = backend.reports
    lacking = [str(each) for each in reports if not each.complete]
    carried = len(reports) - len(lacking)
    note = f"{carried} of {len(reports)} graphs carry out all of the plan"
    return found | {"note": "; ".join([note, *lacking[:1]])[:300]}


PARTS: dict[str, Callable[[Part], None]] = {
    "profiles": profiles,
    "ways": ways,
    "certificates": certificates,
    "train": train,
    "compiled": compiled,
    "small": small,
    "distributed": distributed,
    "bracket": bracket,
}


def main(arguments: list[str] | None = None) -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200.0, help="begin no row afterwards")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--search-seconds", type=float, default=20.0, help="for a certificate")
    parser.add_argument("--documents", type=Path, help="folder of another machine's, for bracket")
    parser.add_argument("--again", action="store_true", help="measure rows that are there already")
    options = parser.parse_args(arguments)
    networks = options.networks.split(",")
    unknown = [name for name in networks if name not in NETWORKS]
    if unknown:
        parser.error(f"--networks: {unknown[0]!r} is none of {', '.join(NETWORKS)}")
    part = Part(
        options.part,
        options.folder,
        options.seconds,
        networks,
        again=options.again,
        search_seconds=options.search_seconds,
        documents=options.documents,
    )
    PARTS[options.part](part)


if __name__ == "__main__":
    main()
