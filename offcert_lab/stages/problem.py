"""The problem of a training step of stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from offcert.core.units import Units
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime import zoo
from offcert.runtime.hardware import Hardware
from offcert.runtime.workloads.workload import DEFAULT_DTYPE, DEFAULT_LOSS, Workload, input_shape
from offcert_lab.stages.recording import profile_stages


def stage_problem(
    model: str | nn.Module,
    shape: str | Sequence[int],
    hardware: Hardware,
    *,
    options: Mapping[str, Any] | None = None,
    dtype: str = DEFAULT_DTYPE,
    loss: str = DEFAULT_LOSS,
    seed: int = 0,
) -> Problem:
    """Return the problem of a network's stages, in nanoseconds and bytes; its links are simplex.

    Of a network of the zoo the stages are the papers', unless `options` say otherwise: each dense
    layer of a DenseNet is one. What one computes from what is not known, so nothing runs
    again. A network that cannot be traced or run on such an input is an `InputError`.
    """
    spec = model if isinstance(model, str) else None
    asked = dict(options or {})
    if spec in zoo.names():
        asked = zoo.stage_options(spec) | asked
    workload = Workload(spec, input_shape(shape), asked, dtype, loss, seed)
    made = model if isinstance(model, nn.Module) else workload.build(shapes_only=True)
    found = profile_stages(made, workload, hardware)
    trace = found.trace
    version = torch.__version__.partition("+")[0]
    source = workload.source() | {"hardware": found.device, "measured": False, "torch": version}
    return Problem(
        f"{spec or type(model).__name__} {'x'.join(map(str, workload.shape))}",
        trace,
        found.platform(max(found.memory, trace.least_memory)),
        units=Units("ns", "B"),
        source=source | hardware.origin({}),
        uncertainty=found.uncertainty,
        recompute=Recompute.NONE,
    )
