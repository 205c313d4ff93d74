"""Tensors that a segment saves, as autograd holds them, and runs that make them again."""

from __future__ import annotations

import weakref
from enum import Enum
from typing import Any, NamedTuple, Protocol

import torch

from offcert.runtime.segments.arguments import Argument
from offcert.runtime.segments.fingerprint import fingerprint, kind_of
from offcert.runtime.segments.keeper import operator_number
from offcert.runtime.torch_private import undispatched
from offcert.runtime.watch.entries import View, is_plain
from offcert.runtime.watch.guard import Guard, SegmentProof, StopRunning


class ComparisonMode(Enum):
    """How much of a call of a segment is compared."""

    # Of fake tensors there is nothing to compare.
    TRUSTED = 0
    ONE = 1
    ALL = 2
    REHEARSAL = 3


class Told(Protocol):
    """The object that is told how a call of a segment ends."""

    guard: Guard

    def ran(self, kind: str) -> None:
        """Take note that it begins to run again, or has done so."""

    def may_drop_casts(self) -> bool:
        """Whether nobody will use the weights that autocast has cast in the forward pass."""

    def has_room(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage may stay on the device in this step."""

    def doubts(self, proof: SegmentProof, flag: torch.Tensor) -> None:
        """Take note of a flag on a device: whether it has made the same again."""


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


class FirstRun(Protocol):
    """The first run of a segment (a `Checkpoint`), as far as another one is compared with it."""

    proof: SegmentProof
    prints: dict[int, tuple[Any, torch.Tensor | None]]
    saved: list[weakref.ref[SavedTensor]]

    @property
    def unknown(self) -> bool:
        """Whether other tensors are saved than in a rehearsal."""

    def may_stop(self) -> bool:
        """Whether the run that is under way may be left."""

    def is_on_host(self, index: int) -> bool:
        """Whether a tensor that was saved stays on the host, and is still needed."""


class Again:
    """A run of a segment for a backward pass, given its number; without one, a rehearsal.

    On other devices than the CPU `flags` say whether tensors are the same; `difference` is the
    first that was found; in a rehearsal, which only compares, `made` has again the tensors that
    stay on the host.
    """

    def __init__(self, checkpoint: FirstRun, number: int | None) -> None:
        self.made: dict[int, torch.Tensor] = {}
        self.flags: list[torch.Tensor] = []
        self.difference: str | None = None
        self._checkpoint, self._number = checkpoint, number
        self._asked = len(checkpoint.saved)
        self._unknown, self._unwritten = checkpoint.unknown, checkpoint.proof.unwritten
        self._count = 0
        # Tensors that had not been written yet, and by which operators.
        self._pending: list[tuple[int, int, torch.Tensor]] = []

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Take a tensor that is saved again, and stop if it is the last one."""
        index, self._count = self._count, self._count + 1
        found = tensor.detach()
        if index >= self._asked:
            return found
        checkpoint = self._checkpoint
        if self._number is not None:
            saved = checkpoint.saved[index]()
            if saved is not None and saved.held is None:
                saved.made[self._number] = found
        elif checkpoint.is_on_host(index):
            self.made[index] = found
        unwritten = not tensor.requires_grad if self._unknown else index in self._unwritten
        if unwritten:
            self._pending.append((operator_number(), index, found))
        elif index in checkpoint.prints:
            self._compare(index, found)
        if self._count == self._asked and not self._is_unwritten() and checkpoint.may_stop():
            raise StopRunning(self)
        return found

    def _is_unwritten(self) -> bool:
        """Whether a tensor of the operator that is under way has not been written yet."""
        return bool(self._pending) and self._pending[-1][0] == operator_number()

    def settle(self) -> None:
        """Compare the tensors that had not been written when they were saved."""
        for _, index, tensor in self._pending:
            if index in self._checkpoint.prints:
                self._compare(index, tensor)

    def _compare(self, index: int, tensor: torch.Tensor) -> None:
        kind, was = self._checkpoint.prints[index]
        if was is None or self.difference is not None:
            return
        if kind == kind_of(tensor):
            now = fingerprint(tensor)
            if now is not None and now.device.type != "cpu":
                self.flags.append((now == was).all())
                return
            if now is not None and torch.equal(now, was):
                return
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        self.difference = f"a tensor of shape {shape} comes out different"

    def wrong_count(self) -> str | None:
        """Return how many tensors were saved, if these are not as many as before, or None."""
        if self._count == self._asked:
            return None
        return f"it saves {self._count} tensors instead of {self._asked}"


def as_is(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that autograd holds itself."""
    return tensor
