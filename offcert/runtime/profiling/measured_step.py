"""A step, measured on the device at hand: what it saves there, how long it takes, and the link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from offcert.runtime.capture import Clock, capture
from offcert.runtime.capture.capture import Capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import cuda_device, versions
from offcert.runtime.device.interface import Device
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware.bandwidth import (
    LinkReading,
    Measurement,
    Span,
    memory_and_name,
    read_link,
    read_link_of,
    with_link,
)
from offcert.runtime.profiling.kernels import Timed
from offcert.runtime.profiling.timing import RepeatedStep, memory_enough
from offcert.runtime.workloads.standard_step import device_of

# Steps that are timed. Arbitrary.
_REPETITIONS = 5
# Nanoseconds for which short steps are repeated while copies run, and steps, at most; on a
# simulated device, which knows its rates, one. Arbitrary.
_LEAST_NS = 20 * 10**6
_MOST_STEPS = 20


def measure_step(
    step: TrainingStep,
    clock: Clock,
    device: Device | None = None,
    hardware: Hardware | None = None,
    repetitions: int = _REPETITIONS,
) -> tuple[Capture, Measurement]:
    """Capture a step by the clock of modules, and measure it; durations are medians.

    On a device with streams (by default the CUDA device that its model is on) the step is captured
    as it runs there, because kernels of another kind of device may save other tensors than tensors
    without data foresee: what cuDNN reserves, masks, statistics. What was not foreseen is in the
    details. On a simulated device, operations take their durations from the hardware model.
    """
    device = cuda_device(step.model, timed=True) if device is None else device
    if device is None:
        captured = capture(step, clock=clock)
        timed = RepeatedStep(step, captured).timed(repetitions)
        where = device_of(step.model)
        found = with_link(timed.trace, read_link_of(where), *memory_and_name(where))
        return captured, replace(found, spread=timed.spread)
    with memory_enough():
        captured, details = captured_on_device(step, clock, hardware)
    repeated = RepeatedStep(step, captured, device)
    timed = repeated.timed(repetitions)
    reading = _link(repeated, device, sum(timed.trace.durations))
    if device.tensors.type == "cuda":
        memory = memory_and_name(device.tensors)[0]
        details["device"] = versions(device.tensors)
        details["durations"] = "kernels" if timed.by_kernels else "events"
    else:
        memory = memory_and_name(device.tensors)[0] if hardware is None else hardware.memory
    if device.tensors.type == "cuda" or repeated.host is not None:
        details |= {"launch_ns": list(timed.launches), "step_ns": timed.step}
    captured = replace(captured, uncounted=_with_libraries(captured.uncounted, timed))
    found = with_link(timed.trace, reading, memory, device.name)
    details |= {"repetitions": repetitions, **found.details}
    if timed.memory is not None:
        details["allocator"] = {
            "resident": timed.resident,
            "peak_allocated": timed.memory.peak_allocated,
            "peak_reserved": timed.memory.peak_reserved,
        }
    return captured, replace(found, details=details, spread=timed.spread)


def captured_on_device(
    step: TrainingStep, clock: Clock, hardware: Hardware | None = None
) -> tuple[Capture, dict[str, Any]]:
    """Capture a step as it runs; return what tensors without data did not foresee, as JSON."""
    captured = capture(step, clock=clock, hardware=hardware, tensors="real")
    if step.tensors == "real":
        return captured, {}
    try:
        foreseen = capture(step, clock=clock, hardware=hardware, tensors="fake")
    except Exception:
        # Somebody else's program may look at values.
        return captured, {}
    before, now = _saved(foreseen), _saved(captured)
    return captured, {"unforeseen": _counted(now - before), "not_saved": _counted(before - now)}


def _saved(captured: Capture) -> Counter[tuple[int, str, int]]:
    """Return the storages by where, as what, and of how many bytes they are saved."""
    return Counter(
        (place.operation, place.dtype, place.size)
        for place in (storage.place for storage in captured.storages)
    )


def _counted(storages: Counter[tuple[int, str, int]]) -> dict[str, int]:
    """Return how many storages there are, and their bytes, as a JSON value."""
    size = sum(size * count for (_, _, size), count in storages.items())
    return {"storages": storages.total(), "bytes": size}


def _with_libraries(uncounted: Mapping[str, int], timed: Timed) -> dict[str, int]:
    """Add the bytes that were allocated when the step began and that nothing else accounts for.

    Libraries keep work areas once they have been used; and the allocator rounds up.
    """
    sizes = dict(uncounted)
    if timed.resident is not None:
        known = sum(size for name, size in sizes.items() if name != "gradients")
        sizes["libraries"] = max(0, timed.resident - known)
    return sizes


def _link(repeated: RepeatedStep, device: Device, step_ns: int) -> LinkReading:
    """Measure the link, also while the step runs."""
    steps = 1
    if device.tensors.type == "cuda":
        steps = max(1, min(_MOST_STEPS, -(-_LEAST_NS // max(1, step_ns))))

    def compute() -> Sequence[Span]:
        return [repeated.run().span for _ in range(steps)]

    return read_link(device, compute, steps * step_ns)
