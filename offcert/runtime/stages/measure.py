"""Durations, workspaces and bandwidth of the device at hand."""

from __future__ import annotations

import copy
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import torch

from offcert.core.trace import Trace
from offcert.runtime.stages.meter import Meter
from offcert.runtime.stages.prepare import Prepared
from offcert.runtime.stages.recording import record
from offcert.runtime.stages.staged import StagedModel
from offcert.runtime.store import HostStore

_COPY_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Measurement:
    """What a device was measured to do.

    Attributes
    ----------
    trace : Trace
        Durations are medians in nanoseconds. Workspaces are the allocator's on CUDA; on the CPU,
        which does not tell, they are those of the fake tensors.
    bandwidth, prefetch_bandwidth : Fraction
        Bytes per nanosecond from the device to the host, and back.
    memory : int
        Bytes of the device.
    device : str
        Its name.
    """

    trace: Trace
    bandwidth: Fraction
    prefetch_bandwidth: Fraction
    memory: int
    device: str


class _Stopwatch:
    """Observes one step: nanoseconds per operation, on the CPU's clock or on the stream's."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[int | torch.cuda.Event, int | torch.cuda.Event]] = []
        self._begun: int | torch.cuda.Event = 0

    def _mark(self) -> int | torch.cuda.Event:
        if not self._cuda:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self, operation: int) -> None:
        self._begun = self._mark()

    def end(self, operation: int) -> None:
        self._marks.append((self._begun, self._mark()))

    def hand_over(self, tensor: torch.Tensor) -> None:
        pass

    def durations(self) -> list[int]:
        if self._cuda:
            torch.cuda.synchronize()
        return [_nanoseconds(begun, ended) for begun, ended in self._marks]


def _nanoseconds(begun: int | torch.cuda.Event, ended: int | torch.cuda.Event) -> int:
    if isinstance(begun, int) and isinstance(ended, int):
        return ended - begun
    assert isinstance(begun, torch.cuda.Event)
    assert isinstance(ended, torch.cuda.Event)
    return round(begun.elapsed_time(ended) * 1e6)


class _AllocatorMeter(Meter):
    """A meter that asks the CUDA allocator for the peak, which includes scratch of kernels."""

    def begin(self, operation: int) -> None:
        super().begin(operation)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self._allocated = torch.cuda.memory_allocated()

    def end(self, operation: int) -> None:
        super().end(operation)
        torch.cuda.synchronize()
        rise = torch.cuda.max_memory_allocated() - self._allocated
        self.peaks[-1] = max(self.peaks[-1], self.at_begin[-1] + rise)


def measure(prepared: Prepared, repetitions: int = 5) -> Measurement:
    """Measure one training step on the first CUDA device, or on the CPU without one.

    Parameters
    ----------
    prepared : Prepared
        A network that has data; a copy of it is run.
    repetitions : int
        Steps to take the median of, after one to warm up.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    root = copy.deepcopy(prepared.traced).to(device)
    staged = StagedModel(prepared.fake.bind(root), prepared.batches.workload.loss)
    generator = torch.Generator().manual_seed(0)
    inputs, labels = prepared.batches.draw(generator)
    batch = [tensor.to(device) for tensor in (inputs, labels) if tensor is not None]
    samples = []
    for _ in range(repetitions + 1):
        watch = _Stopwatch(device)
        staged.forward([tensor.clone() for tensor in batch], watch).backward()
        samples.append(watch.durations())
        root.zero_grad(set_to_none=True)
    durations = [round(statistics.median(times)) for times in zip(*samples[1:], strict=True)]
    trace = record(prepared).trace
    workspaces = [operation.workspace for operation in trace.operations]
    if device.type == "cuda":
        workspaces = _allocator_workspaces(staged, batch, trace)
        memory, name = torch.cuda.mem_get_info()[1], torch.cuda.get_device_name()
    else:
        memory, name = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "cpu"
    return Measurement(_with(trace, durations, workspaces), *_bandwidths(device), memory, name)


def _with(trace: Trace, durations: Sequence[int], workspaces: Sequence[int]) -> Trace:
    operations = [
        replace(operation, duration=duration, workspace=workspace)
        for operation, duration, workspace in zip(
            trace.operations, durations, workspaces, strict=True
        )
    ]
    return Trace(operations, trace.tensors)


def _allocator_workspaces(
    staged: StagedModel, batch: Sequence[torch.Tensor], trace: Trace
) -> list[int]:
    meter = _AllocatorMeter(staged)
    with meter.active():
        meter.step(*batch).backward()
    return [
        max(0, peak - (demand - operation.workspace))
        for peak, demand, operation in zip(meter.peaks, trace.demand, trace.operations, strict=True)
    ]


def _bandwidths(device: torch.device, repetitions: int = 5) -> tuple[Fraction, Fraction]:
    """Return bytes per nanosecond to the host and to the device, as the runtime copies."""
    on_device = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device=device)
    on_host = HostStore(_COPY_BYTES, pinned=device.type == "cuda").view(0, _COPY_BYTES)
    out = _copy_time(on_device, on_host, repetitions)
    back = _copy_time(on_host, on_device, repetitions)
    return Fraction(_COPY_BYTES, out), Fraction(_COPY_BYTES, back)


def _copy_time(source: torch.Tensor, target: torch.Tensor, repetitions: int) -> int:
    times = []
    for _ in range(repetitions + 1):
        begun = time.perf_counter_ns()
        target.copy_(source)
        if source.is_cuda or target.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter_ns() - begun)
    return max(1, round(statistics.median(times[1:])))
