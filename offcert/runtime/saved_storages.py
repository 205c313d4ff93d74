"""Saved-tensor hooks of a user's model: one entry per storage, recognised by where it was saved."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from offcert.runtime.saved import Entry, Handle, is_plain
from offcert.runtime.tracker import LiveBytes


class Place(NamedTuple):
    """By what a saved storage is recognised in another step.

    Attributes
    ----------
    operation : int
        During which it was saved first.
    size : int
        Bytes of the storage.
    dtype : str
        Of the tensor that was saved first.
    shape : tuple of int
        Of that tensor.
    ordinal : int
        How many of the same kind the operation had saved before.
    """

    operation: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    ordinal: int


def owned_storages(model: nn.Module) -> set[int]:
    """Return the addresses of the storages that a model holds: they are never moved."""
    addresses: set[int] = set()
    for tensor in _belongings(model):
        try:
            addresses.add(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):
            # Sparse tensors and some subclasses have no storage; they are not moved either.
            continue
    return addresses


def _belongings(model: nn.Module) -> Iterator[torch.Tensor]:
    for module in model.modules():
        attributes = module.__dict__
        groups: tuple[Iterable[Any], ...] = (
            module._parameters.values(),
            module._buffers.values(),
            attributes.values(),
        )
        for group in groups:
            for value in group:
                if isinstance(value, torch.Tensor):
                    yield value


class SavedStorages:
    """The storages that autograd saves while the model's forward pass runs.

    Entries are held weakly: a storage dies when autograd releases the last handle on it. Storages
    of the model and tensors that are not plain strided ones stay as they are; changes in place
    are detected for all.

    Parameters
    ----------
    owned : set of int
        Addresses of storages that are left alone; it may be set again for every step.
    tracker : LiveBytes, optional
        If one counts operators, it must not count ours.
    """

    def __init__(self, owned: set[int], tracker: LiveBytes | None = None) -> None:
        self.owned = owned
        self._tracker = tracker
        self._by_address: weakref.WeakValueDictionary[int, Entry] = weakref.WeakValueDictionary()

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        """Return the context in which autograd saves handles."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self.unpack)

    def saved(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> Entry:
        """Return the entry of a storage that is saved for the first time."""
        raise NotImplementedError

    def saved_again(self, entry: Entry) -> None:
        """Take note that a storage has been saved once more."""

    def unpack(self, handle: Handle) -> torch.Tensor:
        """Return what autograd had saved."""
        return handle.restore()

    def _pack(self, tensor: torch.Tensor) -> Handle:
        entry = self._entry(tensor)
        if self._tracker is None:
            handle = Handle(tensor, entry)
        else:
            with self._tracker.paused():
                handle = Handle(tensor, entry)
        if entry is not None:
            entry.add(handle)
        return handle

    def _entry(self, tensor: torch.Tensor) -> Entry | None:
        if not is_plain(tensor):
            return None
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self.owned:
            return None
        entry = self._by_address.get(address)
        # An address may be used again once the storage of an offloaded entry has died.
        if entry is None or entry.away or entry.device_storage()._cdata != address:
            entry = self.saved(storage, tensor)
            self._by_address[address] = entry
        else:
            self.saved_again(entry)
        return entry
