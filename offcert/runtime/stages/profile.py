"""The trace of a network's stages, with durations."""

from __future__ import annotations

from torch import nn

from offcert.core.platform import Link
from offcert.runtime.hardware import Hardware
from offcert.runtime.measurement import Measurement, modelled
from offcert.runtime.stages.measure import measure
from offcert.runtime.stages.recording import prepare, record
from offcert.runtime.workload import Workload


def profile_stages(module: nn.Module, workload: Workload, hardware: Hardware | None) -> Measurement:
    """Return the trace of a network's stages, and the device that gave it its durations.

    Parameters
    ----------
    module : nn.Module
        What takes one tensor and returns one; without data only if `hardware` is given.
    workload : Workload
        What it is fed with, and the loss.
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
