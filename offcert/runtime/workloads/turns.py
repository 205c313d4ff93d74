"""Copies of a model that take turns on a device, so that never more than one of them is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from offcert.runtime.torch_private import tree_map_only

_HOST = torch.device("cpu")


class Turns:
    """Brings a model and its optimiser's state to a device for a while, and back to the host.

    No bit changes on the way. Parameters stay the same objects, so optimisers and hooks know them.
    Nothing is moved if the device is the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._moves = device.type != "cpu"
        # State that was on the host when its optimiser ran there has to be there again.
        self._on_host: set[tuple[int, str]] = set()

    def park(self, model: nn.Module, optimiser: torch.optim.Optimizer | None) -> None:
        """Bring a model to the host, wherever it is."""
        if not self._moves:
            return
        rows = _state(optimiser)
        for _, owner, name, value in rows:
            # Adam counts its steps on the host, wherever the parameters are.
            apart = owner.device != _HOST or name == "step"
            if apart and isinstance(value, torch.Tensor) and value.device == _HOST:
                self._on_host.add((id(owner), name))
        model.to(_HOST)
        for values, _, name, value in rows:
            values[name] = moved_to(value, _HOST)

    def bring(self, model: nn.Module, optimiser: torch.optim.Optimizer | None) -> None:
        """Bring a model to the device."""
        if not self._moves:
            return
        model.to(self.device)
        for values, owner, name, value in _state(optimiser):
            if (id(owner), name) not in self._on_host:
                values[name] = moved_to(value, self.device)

    @contextmanager
    def turn(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> Iterator[None]:
        """Let a model be on the device in a block."""
        try:
            self.bring(model, optimiser)
            yield
        finally:
            self.park(model, optimiser)

    def batch(self, batch: Any) -> Any:
        """Return a batch on the device; what is no tensor stays what it is."""
        return moved_to(batch, self.device) if self._moves else batch


def _state(optimiser: torch.optim.Optimizer | None) -> list[tuple[dict[str, Any], Any, str, Any]]:
    return [
        (values, owner, name, value)
        for owner, values in ({} if optimiser is None else optimiser.state).items()
        if isinstance(values, dict)
        for name, value in values.items()
    ]


def moved_to(value: Any, device: torch.device) -> Any:
    """Return a value with all tensors inside of it on a device."""
    return tree_map_only(torch.Tensor, lambda leaf: leaf.to(device), value)


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Let cuDNN choose algorithms that give the same bits again, and not by their times."""
    if device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before
