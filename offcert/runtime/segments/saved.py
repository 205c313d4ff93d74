"""Tensors that a segment saves, as autograd holds them, and runs that make them again."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import torch

from offcert.runtime.segments.arguments import Argument
from offcert.runtime.torch_private import undispatched
from offcert.runtime.watch.entries import View, is_plain


class ComparisonMode(Enum):
    """How much of a call of a segment is compared."""

    # Of fake tensors there is nothing to compare.
    TRUSTED = 0
    ONE = 1
    ALL = 2
    REHEARSAL = 3


class Pending(NamedTuple):
    """A tensor that an operator may not have written yet, with its fingerprint so far."""

    place: int
    tensor: torch.Tensor
    early: torch.Tensor | None
    operator: int


class SavedTensor:
    """The object that autograd holds instead of a tensor that a segment's call has saved.

    If the tensor stays, it is `held`: itself, a `Handle`, or an `OnHost`. As it was `made` again,
    it is there for each backward pass.
    """

    __slots__ = ("__weakref__", "checkpoint", "held", "index", "made")

    def __init__(self, checkpoint: Any, index: int) -> None:
        self.checkpoint, self.index = checkpoint, index
        self.held: Any = None
        self.made: dict[int, torch.Tensor] = {}

    def kept(self) -> torch.Tensor:
        """Return the tensor that stayed."""
        held = self.held
        return held if isinstance(held, torch.Tensor) else held.restore()


class OnHost:
    """A copy in the host's memory of a tensor for which the device has no room."""

    __slots__ = ("_copy", "_device")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._device = tensor.device
        with undispatched(), torch.no_grad():
            self._copy = tensor.detach().to("cpu", copy=True)

    def restore(self) -> torch.Tensor:
        """Return the tensor on its device, where it counts as all others do."""
        with torch.no_grad():
            return self._copy.to(self._device, copy=True)


class Given:
    """A tensor that lies in an argument of the call, which the hooks around the segment hold."""

    __slots__ = ("_argument", "_view")

    def __init__(self, argument: Argument, view: View) -> None:
        self._argument, self._view = argument, view

    def restore(self) -> torch.Tensor:
        """Return the tensor on its device."""
        tensor = self._argument.tensor()
        view = self._view
        return tensor.as_strided(view.shape, view.stride, view.offset)


_ORDINARY = torch.Tensor, torch.nn.Parameter


def is_held(tensor: torch.Tensor, held: dict[int, bool]) -> bool:
    """Whether a tensor lies in one of some storages, given by their addresses."""
    ordinary = type(tensor) in _ORDINARY and tensor.layout is torch.strided
    return (ordinary or is_plain(tensor)) and tensor.untyped_storage()._cdata in held


def as_is(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that autograd holds itself."""
    return tensor
