"""Saved-tensor hooks of a replayed step: one entry per storage that the tracker counts."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import torch

from offcert.runtime.saved import Entry, Handle, is_plain
from offcert.runtime.tracker import LiveBytes

# (operation that saved it first, how many storages that operation had saved before)
Key = tuple[int, int]


class SavedTensors:
    """Saved-tensor hooks over a tracker's storages.

    Entries are held weakly: a storage dies when autograd releases the last handle on it. Storages
    that the tracker does not count (parameters and their views, buffers) and tensors that are not
    plain strided ones stay as they are; changes in place are detected for all.

    Attributes
    ----------
    on_save : callable
        Called with each new entry and the tensor it was made for.
    on_unpack : callable
        Called with an entry whenever autograd asks for a tensor over it.
    """

    def __init__(self, tracker: LiveBytes) -> None:
        self._tracker = tracker
        self.on_save: Callable[[Entry, torch.Tensor], None] | None = None
        self.on_unpack: Callable[[Entry], None] | None = None
        self._by_key: weakref.WeakValueDictionary[Key, Entry] = weakref.WeakValueDictionary()
        self._by_address: weakref.WeakValueDictionary[int, Entry] = weakref.WeakValueDictionary()
        self._counts: dict[int, int] = {}

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries that are alive."""
        return iter(list(self._by_key.values()))

    def get(self, key: Key) -> Entry | None:
        """Return an entry, or None if there is none or autograd has released it."""
        return self._by_key.get(key)

    def clear(self) -> None:
        """Forget everything, before a new step."""
        self._by_key.clear()
        self._by_address.clear()
        self._counts = {}

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        """Return the context in which autograd saves handles."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: torch.Tensor) -> Handle:
        if not is_plain(tensor) or self._tracker.record(tensor.untyped_storage()) is None:
            return Handle(tensor, None)
        storage = tensor.untyped_storage()
        entry = self._by_address.get(storage._cdata)
        # An address may be used again once the storage of an offloaded entry has died.
        if entry is None or entry.away or entry.device_storage()._cdata != storage._cdata:
            operation = self._tracker.now
            ordinal = self._counts.get(operation, 0)
            self._counts[operation] = ordinal + 1
            entry = Entry((operation, ordinal), storage.nbytes())
            self._by_key[entry.key] = entry
            self._by_address[storage._cdata] = entry
            if self.on_save is not None:
                self.on_save(entry, tensor)
        handle = Handle(tensor, entry)
        entry.add(handle)
        return handle

    def _unpack(self, handle: Handle) -> torch.Tensor:
        if handle.entry is not None and self.on_unpack is not None:
            self.on_unpack(handle.entry)
        return handle.restore()
