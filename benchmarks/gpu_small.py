"""A part of `make gpu`: a card made small, in which plain training runs out of memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from gpu_meter import Bench
from gpu_part import Part
from gpu_rows import JOINT, PLAIN

from offcert.proofs.certificate import Certificate, read_certificate
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions

# Steps under a plan; on the simulated device, where each takes long, as many as show a trend.
STEPS, SIMULATED_STEPS = 200, 20
# Of what the plan is made for, with the pieces between tensors. Arbitrary.
_ROOM = 1.05


def small(part: Part) -> None:
    """Train where plain training has no room, and see whether what is reserved grows."""
    for network in part.wanted(PLAIN, JOINT):
        path = part.certificate(network, JOINT)
        if not path.exists():
            print(f"{network}: no certificate; PART=certificates makes it", flush=True)
            continue
        certificate, bench = read_certificate(path), Bench(network)
        # The batch and what libraries keep are there before the card is made small.
        batch = bench.step.make_batch()
        bench.step.execute(batch)
        bench.free()
        for way in part.missing(network, (PLAIN, JOINT)):
            with part.row(network, way) as found, _made_small(bench, certificate) as device:
                found |= {"device": bench.name, "limit": certificate.problem.platform.memory}
                if way == PLAIN:
                    found |= _plain(bench, batch)
                else:
                    found |= _ours(bench, batch, certificate, device)
            bench.free()


@contextmanager
def _made_small(bench: Bench, certificate: Certificate) -> Iterator[Device]:
    """Let a device have a little more memory than is there now and the plan takes."""
    problem = certificate.problem
    limit, peak = problem.platform.memory, problem.plain().trace.peak_memory
    # Less than a plain step needs in any case.
    beyond = min(round(_ROOM * limit), (limit + peak) // 2)
    if bench.simulated:
        device: Any = bench.device(problem.platform, memory=beyond)
        with bench.counting() as counter:
            assert counter is not None
            device.watch(counter)
            counter.start()
            yield device
        return
    whole = torch.cuda.get_device_properties(bench.where).total_memory
    # Segments of which a tensor has a part stay, whatever has been given back.
    cap = torch.cuda.memory_reserved() + beyond
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / whole))
    try:
        yield bench.device()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def _plain(bench: Bench, batch: Any) -> dict[str, Any]:
    try:
        bench.step.execute(batch)
    except torch.OutOfMemoryError:
        return {"note": "out of memory, as it should be"}
    return {"note": "the step fits: nothing is shown", "failed": True}


def _ours(bench: Bench, batch: Any, certificate: Certificate, device: Device) -> dict[str, Any]:
    """Return the columns of many steps under a plan, and how much was reserved on the way."""
    steps = SIMULATED_STEPS if bench.simulated else STEPS
    chosen: dict[str, Any] = {}
    if bench.simulated:
        chosen = {"device": device, "timed": True, "count": True}
    reserved, times = [], []
    with follow(bench.model, certificate, options=FollowOptions(**chosen)) as training:
        for _ in range(steps):
            device.reset_peaks()
            begin = device.compute.record()
            bench.step.execute(batch)
            end = device.compute.record()
            device.synchronise()
            times.append(device.nanoseconds(begin, end) / 1e6)
            reserved.append(device.memory().peak_reserved)
        planned = training.steps["planned"]
    return {
        "measured_ms": statistics.median(times),
        "peak_reserved": max(reserved),
        "planned": planned,
        "steps": steps,
        "note": growth(reserved),
    }


def growth(reserved: Sequence[int]) -> str:
    """Return how much more memory was reserved later than in the first tenth of all steps.

    By then rehearsals are over, and the allocator has what it needs for one step.
    """
    early = max(1, len(reserved) // 10)
    first = max(reserved[:early])
    more = max(reserved) - first
    return f"reserved {first:,} bytes in the first {early} steps, {more:,} more later"
