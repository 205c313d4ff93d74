"""The trace of a network's stages, with durations."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from offcert.core.platform import Link
from offcert.core.trace import Trace
from offcert.runtime.device.cuda import CudaDevice
from offcert.runtime.device.interface import Device, DeviceEvent
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware.bandwidth import Measurement, measured, modelled, retimed, spread_of
from offcert.runtime.stages.meter import Meter
from offcert.runtime.stages.recording import Prepared, prepare, record
from offcert.runtime.stages.staged import StagedModel
from offcert.runtime.workloads.turns import Stopwatch
from offcert.runtime.workloads.workload import Workload


class _Watched:
    """Observes one step: nanoseconds per operation."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._marks: list[int | DeviceEvent] = []

    def begin(self, operation: int) -> None:
        self._marks.append(self._watch.mark())

    def end(self, operation: int) -> None:
        self._marks.append(self._watch.mark())

    def hand_over(self, tensor: torch.Tensor) -> None:
        pass

    def durations(self) -> list[int]:
        # What lies between the end of one operation and the begin of the next is no operation's.
        return self._watch.between(self._marks)[::2]


class _AllocatorMeter(Meter):
    """A meter that asks the device's allocator for the peak, which includes scratch of kernels."""

    def __init__(self, staged: StagedModel, device: Device) -> None:
        super().__init__(staged)
        self._device = device
        self._allocated = 0

    def begin(self, operation: int) -> None:
        super().begin(operation)
        self._device.synchronise()
        self._device.reset_peaks()
        self._allocated = self._device.memory().allocated

    def end(self, operation: int) -> None:
        super().end(operation)
        self._device.synchronise()
        rise = self._device.memory().peak_allocated - self._allocated
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
    streams = CudaDevice(timed=True) if torch.cuda.is_available() else None
    device = torch.device("cpu") if streams is None else streams.tensors
    root = copy.deepcopy(prepared.traced).to(device)
    staged = StagedModel(prepared.fake.bind(root), prepared.batches.workload.loss)
    generator = torch.Generator().manual_seed(0)
    inputs, labels = prepared.batches.draw(generator)
    batch = [tensor.to(device) for tensor in (inputs, labels) if tensor is not None]
    samples = []
    for _ in range(repetitions + 1):
        watch = _Watched(Stopwatch(streams))
        staged.forward([tensor.clone() for tensor in batch], watch).backward()
        samples.append(watch.durations())
        root.zero_grad(set_to_none=True)
    durations = [round(statistics.median(times)) for times in zip(*samples[1:], strict=True)]
    trace = record(prepared).trace
    workspaces = [operation.workspace for operation in trace.operations]
    if streams is not None:
        workspaces = _allocator_workspaces(staged, batch, trace, streams)
    found = measured(retimed(trace, durations, workspaces), device)
    return replace(found, spread=spread_of(samples[1:]))


def _allocator_workspaces(
    staged: StagedModel, batch: Sequence[torch.Tensor], trace: Trace, device: Device
) -> list[int]:
    meter = _AllocatorMeter(staged, device)
    with meter.active():
        meter.step(*batch).backward()
    return [
        max(0, peak - (demand - operation.workspace))
        for peak, demand, operation in zip(meter.peaks, trace.demand, trace.operations, strict=True)
    ]


def profile_stages(module: nn.Module, workload: Workload, hardware: Hardware | None) -> Measurement:
    """Return the trace of a network's stages, and the device that gave it its durations.

    Parameters
    ----------
    module : nn.Module
        A module that takes one tensor and returns one; without data only if `hardware` is given.
    workload : Workload
        Inputs of the module, and the loss.
    hardware : Hardware or None
        The roofline; None: measure the first CUDA device or, without one, the CPU.

    Raises
    ------
    InputError
        If the network cannot be traced or does not fit the input.
    """
    prepared = prepare(module, workload)
    if hardware is None:
        return measure(prepared)
    # As the papers take it.
    return modelled(record(prepared, hardware).trace, hardware, Link.SIMPLEX)
