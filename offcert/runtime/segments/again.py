"""A run of a segment for the backward pass: what it saves is used, or compared, or both."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch

from offcert.runtime.segments.fingerprint import fingerprint, kind_of
from offcert.runtime.segments.operators import operator_number
from offcert.runtime.segments.saved import Saved
from offcert.runtime.watch.proof import SegmentProof, StopRunning


class FirstRun(Protocol):
    """The first run of a segment (a `Checkpoint`), as far as another one is compared with it."""

    proof: SegmentProof
    prints: dict[int, tuple[Any, torch.Tensor | None]]
    saved: list[weakref.ref[Saved]]

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
        self._checkpoint = checkpoint
        self._number = number
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
