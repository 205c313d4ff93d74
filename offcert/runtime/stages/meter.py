"""Live bytes and peaks per operation of a training step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from offcert.core.errors import PlanError
from offcert.runtime.stages.saved import SavedTensors
from offcert.runtime.stages.staged import StagedModel
from offcert.runtime.tracker import LiveBytes


class Meter:
    """Runs training steps of a staged model and counts live bytes at every event.

    Everything that runs a step under a tracker, on fake tensors or on real ones, with or without a
    plan, is a `Meter`, so that all of them hold the same references at the same time.

    Attributes
    ----------
    at_begin : list of int
        Live bytes when each operation begins.
    at_end : list of int
        Live bytes when each operation ends.
    peaks : list of int
        The most live bytes at once while each operation ran.
    """

    def __init__(self, staged: StagedModel) -> None:
        self.staged = staged
        self.tracker = LiveBytes()
        self.saved = SavedTensors(self.tracker)
        self._reset()

    def _reset(self) -> None:
        self.at_begin: list[int] = []
        self.at_end: list[int] = []
        self.peaks: list[int] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch operators and parameter gradients; steps run inside."""
        with ExitStack() as stack:
            for parameter in self.staged.line.root.parameters():
                if parameter.requires_grad:
                    hook = parameter.register_post_accumulate_grad_hook(self._exclude_gradient)
                    stack.callback(hook.remove)
            stack.enter_context(self.tracker)
            yield

    def _exclude_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.tracker.exclude([parameter.grad])

    def step(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Copy a batch to the device, run the forward operations and return the loss."""
        self._reset()
        self.saved.clear()
        self.tracker.start()
        self.tracker.exclude(self.staged.line.belongings())
        batch = [tensor.clone() for tensor in (inputs, labels) if tensor is not None]
        with self.saved.hooks():
            return self.staged.forward(batch, self)

    def begin(self, operation: int) -> None:
        """Note the live bytes before an operation.

        Raises
        ------
        PlanError
            If it is not the next operation of the latest step.
        """
        self.tracker.now = operation
        if operation != len(self.at_begin):
            raise PlanError(
                f"operation {operation} came where {len(self.at_begin)} was due: a backward pass "
                "must follow its own step"
            )
        self.transfer(operation)
        self.at_begin.append(self.tracker.live)
        self.tracker.start_peak()

    def transfer(self, operation: int) -> None:
        """Move what a plan wants to be moved before an operation; without a plan, nothing."""

    def end(self, operation: int) -> None:
        """Note the live bytes after an operation."""
        self.at_end.append(self.tracker.live)
        self.peaks.append(self.tracker.peak)
        if operation == self.staged.operations - 1:
            self.tracker.stop()

    def hand_over(self, tensor: torch.Tensor) -> None:
        """Leave out of the count what belongs to the caller from now on."""
        self.tracker.exclude([tensor])
