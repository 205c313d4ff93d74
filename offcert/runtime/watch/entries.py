"""Tensors that autograd saves: one entry per storage, and handles that restore tensors over it."""

from __future__ import annotations

import sys
import weakref
from typing import Any, NamedTuple

import torch

from offcert.core.errors import OffcertError, PlanError
from offcert.runtime.torch_private import FakeTensor, storage_users
from offcert.runtime.watch.sharded import Whole


class InPlaceError(OffcertError, RuntimeError):
    """A tensor that autograd had saved was changed in place before its backward needed it."""


class View(NamedTuple):
    """How a tensor lies in its storage."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def like(cls, tensor: torch.Tensor) -> View:
        """Return dtype, shape, strides and offset of a tensor in its storage."""
        return cls(tensor.dtype, tensor.shape, tensor.stride(), int(tensor.storage_offset()))


def viewed(
    data: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
) -> torch.Tensor:
    """Return a view of bytes; it shares their version."""
    beyond = data.numel() % dtype.itemsize
    typed = (data[:-beyond] if beyond else data).view(dtype)
    return typed.as_strided(shape, stride, offset)


class Handle:
    """The object that autograd holds instead of a saved tensor."""

    __slots__ = ("__weakref__", "entry", "stale", "tensor", "version", "view", "whole")

    def __init__(self, tensor: torch.Tensor, entry: StorageEntry | None) -> None:
        # The storage; None for tensors of the model, which are left alone.
        self.entry = entry
        # The version is of the detached one: subclasses that wrap tensors do not share theirs.
        detached = tensor.detach()
        # Autograd saves a parameter itself: what is given to it as `.data` later is what it uses.
        itself = entry is None and tensor.is_leaf and tensor.requires_grad
        # The saved tensor, detached, as long as it has not left the device: it shares its version
        # counter with the tensor that was saved. `stale`: it had been changed when it left.
        self.tensor: torch.Tensor | None = tensor if itself else detached
        self.version, self.stale = detached._version, False
        # How it lies in its storage, once it has left: data type, shape, strides, offset.
        self.view: tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int] | None = None
        # The `DTensor` of which the tensor is the part on this process, if it is one.
        self.whole: Whole | None = None

    @property
    def changed(self) -> bool:
        """Whether the tensor was changed in place after it had been saved."""
        if self.stale or (self.whole is not None and self.whole.changed):
            return True
        if self.tensor is not None:
            return self.tensor._version != self.version
        return self.entry is not None and self.entry.changed

    def restore(self) -> torch.Tensor:
        """Return the saved tensor; an error says if it was changed in place, or is not here."""
        part = self._restore()
        return part if self.whole is None else self.whole.of(part)

    def _restore(self) -> torch.Tensor:
        tensor = self.tensor
        if tensor is not None and not self.changed:
            # Another one, so that it shows if whoever asked keeps it.
            return tensor.detach()
        if self.changed:
            known = () if self.view is None else self.view[1]
            shape = "x".join(map(str, known if tensor is None else tensor.shape)) or "scalar"
            raise InPlaceError(
                f"a tensor of shape {shape} saved for the backward pass was changed in place "
                "afterwards; its gradient would be wrong"
            )
        assert self.entry is not None
        assert self.view is not None
        if self.entry.data is None:
            raise PlanError(
                f"a storage of {self.entry.size} bytes, saved as {self.entry.key}, is needed, but "
                "the plan has not brought it back"
            )
        return viewed(self.entry.data, *self.view)


class StorageEntry:
    """One storage that autograd saves, wherever its bytes are.

    It lives as long as one of its handles.
    """

    __slots__ = ("__weakref__", "address", "data", "handles", "key", "sending", "size", "version")

    def __init__(self, key: Any, size: int) -> None:
        self.key, self.size = key, size  # By the key it is recognised in another step
        # All bytes of the storage it came back in, with this `version` then; None while the
        # original is on the device, or nothing is. Whatever is restored is a view of it, so that
        # its version tells of changes.
        self.data: torch.Tensor | None = None
        # All bytes, while a stream copies them to the host: whoever waits for that holds them.
        self.sending: torch.Tensor | None = None
        # Of the storage that it was last recognised in; 0 since it has left that.
        self.version = self.address = 0
        # Most have one or two; a set of weak references would cost more than all else here.
        self.handles: list[weakref.ref[Handle]] = []

    def add(self, handle: Handle) -> None:
        """Register a handle; the entry lives as long as one of them."""
        self.handles.append(weakref.ref(handle))

    @property
    def away(self) -> bool:
        """Whether nothing of it is on the device."""
        if self.data is not None:
            return False
        for reference in self.handles:
            handle = reference()
            if handle is not None and handle.tensor is not None:
                return False
        return True

    @property
    def changed(self) -> bool:
        """Whether it was changed in place after it had come back."""
        return self.data is not None and self.data._version != self.version

    def device_storage(self) -> torch.UntypedStorage:
        """Return the storage on the device; call it only if there is one."""
        if self.data is not None:
            return self.data.untyped_storage()
        for reference in self.handles:
            handle = reference()
            if handle is not None and handle.tensor is not None:
                return handle.tensor.untyped_storage()
        raise LookupError(f"nothing of {self.key} is on the device")

    @property
    def held_elsewhere(self) -> bool:
        """Whether someone besides autograd's handles keeps the storage on the device alive."""
        return not self.away and self.alone() is None

    def alone(self) -> torch.UntypedStorage | None:
        """Return the storage on the device; None if someone besides autograd's handles holds it.

        If nothing is on the device, a `LookupError` is raised.
        """
        # The storage's own Python object counts as one user; someone may have that alone.
        tensor, ours = self.data, 1 if self.data is None else 2
        for reference in self.handles:
            handle = reference()
            if handle is not None and handle.tensor is not None:
                tensor = handle.tensor
                ours += 1
        if tensor is None:
            raise LookupError(f"nothing of {self.key} is on the device")
        if self.sending is not None:
            ours += 1
        storage = tensor.untyped_storage()
        users = storage_users(storage._cdata)
        return None if users > ours or sys.getrefcount(storage) > _REFERENCES else storage

    def versions(self) -> dict[int, int]:
        """Return the versions of the storage on the device, by who knows them."""
        alive = [each for reference in self.handles if (each := reference()) is not None]
        found = {id(each): each.tensor._version for each in alive if each.tensor is not None}
        return found if self.data is None else found | {id(self): self.data._version}

    def drop(self) -> None:
        """Drop every reference to the storage on the device."""
        for reference in self.handles:
            handle = reference()
            if handle is None:
                continue
            tensor = handle.tensor
            if tensor is None or handle.whole is not None:
                handle.stale = handle.changed
            elif tensor._version != handle.version:
                handle.stale = True
            if tensor is not None:
                offset: Any = tensor.storage_offset()
                handle.view = tensor.dtype, tensor.shape, tensor.stride(), offset
                handle.tensor = None
        self.data = self.sending = None
        self.address = 0

    def put(self, data: torch.Tensor) -> None:
        """Take these bytes as those on the device from now on."""
        self.data = data
        self.version = data._version


def _references() -> int:
    storage = torch.empty(1).untyped_storage()
    tensor = torch.empty(0).set_(storage)
    del storage
    storage = tensor.untyped_storage()
    return sys.getrefcount(storage)


# References to a storage's Python object that only a variable holds: PyTorch may have some itself.
_REFERENCES = _references()


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an ordinary one over a storage of its own kind."""
    kind = type(tensor)
    ordinary = kind is torch.Tensor or kind is FakeTensor
    return (
        (ordinary or kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
