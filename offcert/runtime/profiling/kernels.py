"""Times of operations by the kernels that they run, as PyTorch's profiler saw them on a device.

Events between two operations measure the host wherever it is behind. A profile tells of each kernel
when the host launched it, when it began and when it ended; so what the device waited for its host
can be told from what it did.
"""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from offcert.core.trace import Trace
from offcert.runtime.device.interface import MemoryReading

# The name of an annotation that marks where an operation begins, or the last one ends.
MARK = "offcert: an operation begins"
# Kinds of what a device does, in a profile. Given by PyTorch.
_DONE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHED = ("cuda_runtime", "cuda_driver")
_NS_PER_US = 1000


@dataclass(frozen=True)
class Kernel:
    """A kernel, in nanoseconds."""

    launched: int  # When the host launched it
    # When it ran.
    begin: int
    end: int


def mark() -> AbstractContextManager[Any]:
    """Return a context that marks a place in a profile."""
    return torch.profiler.record_function(MARK)


def read_profile(events: Iterable[Mapping[str, Any]]) -> tuple[list[int], list[Kernel]]:
    """Return the marks and the kernels of a profile, each in the order of time."""
    marks: list[int] = []
    launched: dict[Any, int] = {}
    ran: list[tuple[Any, int, int]] = []
    for event in events:
        kind, arguments = event.get("cat"), event.get("args") or {}
        if kind == "user_annotation" and event.get("name") == MARK:
            marks.append(_nanoseconds(event["ts"]))
        elif kind in _LAUNCHED and "correlation" in arguments:
            launched[arguments["correlation"]] = _nanoseconds(event["ts"])
        elif kind in _DONE:
            begin = _nanoseconds(event["ts"])
            end = begin + _nanoseconds(event["dur"])
            ran.append((arguments.get("correlation"), begin, end))
    kernels = [
        Kernel(launched[number], begin, end) for number, begin, end in ran if number in launched
    ]
    return sorted(marks), sorted(kernels, key=lambda each: (each.begin, each.end))


def _nanoseconds(microseconds: Any) -> int:
    return round(float(microseconds) * _NS_PER_US)


def kernel_times(marks: Sequence[int], kernels: Sequence[Kernel]) -> list[int]:
    """Return how long a device needs for each operation, if its host is ahead.

    A kernel belongs to the operation in which it was launched. What lies between the end of the
    kernels before it and its own end is its time, but for what the device waited for its launch:
    where it was launched when nothing was left to do, only its own duration counts.
    """
    times = [0] * (len(marks) - 1)
    done = None
    for kernel in kernels:
        operation = bisect_right(marks, kernel.launched) - 1
        begin = kernel.begin if done is None or kernel.launched >= done else done
        # Kernels of several streams may run at the same time.
        if 0 <= operation < len(times):
            times[operation] += max(0, kernel.end - max(begin, done or begin))
        done = kernel.end if done is None else max(done, kernel.end)
    return times


def times_by_kernels(run: Callable[[], object], operations: int) -> list[int] | None:
    """Return how many nanoseconds a CUDA device needs for each operation of a step that is run.

    `run` runs the step once, marks where each operation begins and where the last one ends, and
    waits until all is done. None if this PyTorch's profiler sees no kernels.
    """
    wanted = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
    if not wanted <= torch.profiler.supported_activities():
        return None
    with torch.profiler.profile(activities=sorted(wanted, key=str)) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    marks, kernels = read_profile(events)
    if len(marks) != operations + 1 or not kernels:
        return None
    return kernel_times(marks, kernels)


@dataclass(frozen=True)
class Timed:
    """The times of a step that was run on a device several times."""

    trace: Trace  # With its durations, and with its workspaces if the allocator tells
    # The most bytes that were taken when an operation began, beside the parameters' gradients and
    # what the trace counts; None if the allocator does not tell.
    resident: int | None
    memory: MemoryReading | None  # Of one step from its beginning to its end; likewise
    spread: tuple[tuple[int, int], ...] = ()  # The least and the most nanoseconds of each operation
    # The nanoseconds that the host took to hand over each operation, medians.
    launches: tuple[int, ...] = ()
    # Nanoseconds of the step without anything between its operations, a median; the durations add
    # up to it wherever the host is ahead.
    step: int = 0
    # Whether durations are those of kernels (`offcert.runtime.profiling.kernels`).
    by_kernels: bool = False
