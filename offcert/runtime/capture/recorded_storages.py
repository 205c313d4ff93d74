"""The storages that autograd saves in a step that is recorded."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from offcert.runtime.watch.entries import Entry, Handle
from offcert.runtime.watch.saved_hooks import Owned, SavedStorages
from offcert.runtime.watch.sharded import local


class RecordedStorages(SavedStorages):
    """Saved storages that tell the recorder."""

    def __init__(self, recorder: Any) -> None:
        hooks = recorder.hooks
        super().__init__(Owned(hooks.parts), hooks.parts.device, recorder.tracker, hooks.guard)
        self._recorder = recorder
        # At which moment each was saved.
        self._moments: weakref.WeakKeyDictionary[Handle, int] = weakref.WeakKeyDictionary()

    def saved(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> Entry:
        """Return the entry of a storage that is saved for the first time."""
        entry = Entry(len(self._recorder.saved), storage.nbytes())
        self._recorder.note_saved(entry, tensor)
        return entry

    def saved_again(self, entry: Entry) -> None:
        """Tell the recorder that a storage has been saved once more."""
        self._recorder.note_needed(entry)

    def _pack(self, tensor: torch.Tensor) -> Handle:
        handle = super()._pack(tensor)
        part = local(tensor)
        self._recorder.packed.append(self._recorder.see(part))
        self._moments[handle] = self._recorder.moment_of_saving(part)
        return handle

    def bring_back(self, handle: Handle) -> None:
        """Bring back what the recorder's rule has let leave."""
        entry, rule = handle.entry, self._recorder.rule
        if entry is not None and entry.away and rule is not None:
            rule.bring_back(entry, self.device)
            self.know(entry)

    def asked_for(self, handle: Handle) -> None:
        """Tell the recorder what autograd asks for."""
        recorder = self._recorder
        if handle.entry is not None:
            recorder.note_unpacked(handle.entry)
        recorder.unpacked.append((recorder.tracker.now, self._moments[handle]))
