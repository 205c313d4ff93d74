"""Durations, workspaces and bandwidth of the device at hand."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence

import torch

from offcert.core.trace import Trace
from offcert.runtime.measurement import Measurement, measured, retimed
from offcert.runtime.stages.meter import Meter
from offcert.runtime.stages.prepare import Prepared
from offcert.runtime.stages.recording import record
from offcert.runtime.stages.staged import StagedModel
from offcert.runtime.stopwatch import Mark, mark, nanoseconds


class _Stopwatch:
    """Observes one step: nanoseconds per operation."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[Mark, Mark]] = []
        self._begun: Mark = 0

    def begin(self, operation: int) -> None:
        self._begun = mark(self._device)

    def end(self, operation: int) -> None:
        self._marks.append((self._begun, mark(self._device)))

    def hand_over(self, tensor: torch.Tensor) -> None:
        pass

    def durations(self) -> list[int]:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return [nanoseconds(begun, ended) for begun, ended in self._marks]


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

    Returns
    -------
    Measurement
        Durations are medians. Workspaces are the allocator's on CUDA; on the CPU, which does not
        tell, they are those of the fake tensors.
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
    return measured(retimed(trace, durations, workspaces), device)


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
