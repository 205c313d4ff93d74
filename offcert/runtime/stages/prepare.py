"""A workload's network, traced and cut into stages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from offcert.runtime.stages.linearise import Line, fake_copy, linearise, trace_module, vocabulary
from offcert.runtime.stages.staged import StagedModel
from offcert.runtime.workload import Batches, Workload


@dataclass(frozen=True)
class Prepared:
    """A workload's network, traced and linearised on fake tensors.

    Attributes
    ----------
    fake : Line
        The stages over a copy of the network that has no data.
    traced : torch.fx.GraphModule
        The traced network itself.
    batches : Batches
        What it is fed with.
    mode : FakeTensorMode
        The mode that the fake tensors belong to.
    """

    fake: Line
    traced: torch.fx.GraphModule
    batches: Batches
    mode: FakeTensorMode

    def staged(self) -> StagedModel:
        """Return the real network in stages; it shares parameters and buffers with the module."""
        return StagedModel(self.fake.bind(self.traced), self.batches.workload.loss)


def prepare(model: nn.Module, workload: Workload) -> Prepared:
    """Trace and linearise `model` for the inputs of `workload`.

    Raises
    ------
    InputError
        If the module cannot be traced or does not fit the input.
    """
    traced = trace_module(model)
    tokens = vocabulary(traced)
    mode = FakeTensorMode()
    with mode:
        example, _ = Batches(workload, tokens, ()).shapes()
        line = linearise(fake_copy(traced), example, type(model).__name__)
    return Prepared(line, traced, Batches(workload, tokens, line.output_shape), mode)
