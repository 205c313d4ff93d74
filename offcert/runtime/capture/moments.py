"""Parts of a recording: moments, the lives of storages, and tensors that were seen.

`RecordedStorages` has those that autograd saves in a step that is recorded.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from offcert.runtime.watch.entries import Entry, Handle
from offcert.runtime.watch.events import Event
from offcert.runtime.watch.saved_hooks import Owned, SavedStorages
from offcert.runtime.watch.sharded import local
from offcert.runtime.watch.tracker import StorageRecord


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


@dataclass(slots=True)
class Moment:
    """An event or an operator, and what happened from there to the next moment.

    Attributes
    ----------
    event : Event
        The event of this moment; operators are events too.
    backward : bool
        Whether a backward pass was under way.
    live : int
        Live bytes when it began.
    peak : int
        The most live bytes until the next moment.
    launches : bool
        Whether an operator did any work: views and allocations do not.
    duration : int
        Of that work, in ticks.
    module : str
        Path of the module that an operator was called in.
    """

    event: Event
    backward: bool
    live: int
    module: str
    peak: int = 0
    launches: bool = False
    duration: int = 0


@dataclass(slots=True)
class Life:
    """The life of one storage during a recorded step.

    Attributes
    ----------
    record : StorageRecord
        Its bytes, and the moments of its birth and death.
    touched : set of int
        Moments at which an operator or autograd needed it.
    held : list of (int, int)
        First and last moments of the stretches in which someone besides autograd held it.
    saved_at : int or None
        The moment at which autograd saved it first.
    entry : weakref to Entry, or None
        The entry that autograd holds since then.
    changed : set of int
        Moments at which an operator changed it in place.
    """

    record: StorageRecord
    touched: set[int] = field(default_factory=set)
    held: list[tuple[int, int]] = field(default_factory=list)
    saved_at: int | None = None
    entry: weakref.ref[Entry] | None = None
    changed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Seen:
    """A tensor at a moment.

    Attributes
    ----------
    moment : int
        When.
    storage : hashable or None
        Of the tensor: its life if it is counted; None if the model holds it.
    size : int
        Bytes of the storage.
    dtype : str
        Data type of the tensor.
    shape : tuple of int
        Shape of the tensor.
    """

    moment: int
    storage: Any
    size: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class Saved:
    """A storage that the model's forward pass saved; `life` is None if it is not counted."""

    moment: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    life: Life | None
