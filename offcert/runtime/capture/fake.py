"""Fake twins: tensors with the shapes of others and no data."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map

from offcert.runtime.capture.step import TrainingStep


class FakeTwins:
    """Fake twins of real tensors, one for each, so that what is tied stays tied.

    Attributes
    ----------
    mode : FakeTensorMode
        Under which they live. Real tensors that a step meets elsewhere get twins, too.
    """

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake twin of a tensor; no data is copied."""
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._twins.get(id(tensor))
        if known is None:
            # The original is kept, too: its address must not be used again.
            known = self._twins[id(tensor)] = (tensor, self._make(tensor))
        return known[1]

    def _make(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "meta":
            made: torch.Tensor = self.mode.from_tensor(tensor)
            if made.is_leaf:
                # A step begins without gradients; it would add to a twin of the one that is there.
                made.grad = None
            return made
        with self.mode:
            empty = torch.empty_strided(
                tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu"
            )
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(empty, requires_grad=tensor.requires_grad)
        return empty.requires_grad_(tensor.requires_grad)

    def batch(self, step: TrainingStep) -> Any:
        """Return a batch without data; call it under `mode`."""
        return tree_map(
            lambda leaf: self.twin(leaf) if isinstance(leaf, torch.Tensor) else leaf,
            step.make_batch(),
        )
