"""From a network to a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.core.platform import Platform
from offcert.core.problem import Problem, Units
from offcert.runtime.hardware import hardware as find_hardware
from offcert.runtime.quiet import one_line
from offcert.runtime.stages.measure import measure as measure_step
from offcert.runtime.stages.prepare import prepare
from offcert.runtime.stages.recording import record
from offcert.runtime.workload import Workload
from offcert.runtime.workload import input_shape as parse_shape

_NS_PER_SECOND = 10**9


def profile(
    model: str | nn.Module,
    input_shape: str | Sequence[int],
    *,
    hardware: str | None = None,
    measure: bool = False,
    loss: str = "cross-entropy",
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    seed: int = 0,
    name: str | None = None,
    memory: int | None = None,
) -> Problem:
    """Turn one training step of a network into a problem, in nanoseconds and bytes.

    Bytes come from running the step on fake tensors, so they need no memory; durations come from a
    stated hardware model or from measuring the device at hand, never from a mixture.

    Parameters
    ----------
    model : str or nn.Module
        A name of the zoo, ``"package.module:callable"``, or a module in training mode that takes
        one tensor and returns one.
    input_shape : str or sequence of int
        For example ``"32x3x224x224"``, batch size first. A network whose input goes into an
        `nn.Embedding` is fed with token numbers, any other with floats.
    hardware : str, optional
        Name of a hardware model (`offcert.runtime.hardware.HARDWARE`): a roofline.
    measure : bool
        Measure durations and bandwidth on the first CUDA device or, without one, on the CPU, whose
        "link" is the copy to a memory-mapped file.
    loss : str
        ``"cross-entropy"`` over the last dimension of the output, or its ``"mean"``.
    options : mapping, optional
        Keyword arguments for what `model` names.
    dtype : str
        Of parameters and floating-point inputs.
    seed : int
        Of the initial weights.
    name : str, optional
        Name of the problem; by default network and input shape.
    memory : int, optional
        The limit in bytes; by default the device's, but at least the least that is feasible.

    Returns
    -------
    Problem
        Its ``source`` has what ``train`` needs to rebuild the network.

    Raises
    ------
    InputError
        If the network is unknown, cannot be traced or does not fit the input, or if not exactly
        one of `hardware` and `measure` is given.
    """
    if (hardware is None) is not measure:
        raise InputError("exactly one of hardware and measure must be given")
    # Looked up first: a wrong name should not have to wait for the network.
    model_of_device = None if hardware is None else find_hardware(hardware)
    shape = parse_shape(input_shape)
    spec = model if isinstance(model, str) else None
    workload = Workload(spec, shape, options or {}, dtype, loss, seed)
    label = f"{spec or type(model).__name__} {'x'.join(map(str, shape))}"
    try:
        module = workload.build(shapes_only=not measure) if isinstance(model, str) else model
        prepared = prepare(module, workload)
        if measure:
            measured = measure_step(prepared)
            trace, capacity = measured.trace, measured.memory
            bandwidth, back = measured.bandwidth, measured.prefetch_bandwidth
            device = measured.device
        else:
            assert model_of_device is not None
            trace = record(prepared, model_of_device).trace
            capacity = model_of_device.memory
            bandwidth = back = Fraction(model_of_device.link_bandwidth, _NS_PER_SECOND)
            device = model_of_device.name
    except OffcertError:
        raise
    except Exception as error:
        # Somebody else's network can fail in any way; it is the input that is bad then.
        raise InputError(f"{label} cannot be profiled: {one_line(error)}") from error
    if memory is None:
        memory = max(capacity, trace.least_memory)
    if name is None:
        name = label
    source = workload.source() | {
        "hardware": device,
        "measured": measure,
        "torch": torch.__version__.partition("+")[0],
    }
    platform = Platform(memory, bandwidth, prefetch_bandwidth=back)
    return Problem(name, trace, platform, units=Units("ns", "B"), source=source)
