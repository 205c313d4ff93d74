"""The storages that a step under a plan saves."""

from __future__ import annotations

import weakref

import torch

from offcert.runtime.follow.run import StepRun
from offcert.runtime.watch.entries import Handle, StorageEntry
from offcert.runtime.watch.events import UNPACK
from offcert.runtime.watch.guard import guarded
from offcert.runtime.watch.saved_hooks import (
    Owned,
    SavedStorages,
    keep_uncompiled,
    uncompiled,
)
from offcert.runtime.watch.tracker import LiveBytes


class StepStorages(SavedStorages):
    """Saved storages that tell their step; the step must not hold them, for their hooks hold it.

    Tensors without any specialty, nearly all, are packed and unpacked in the fewest calls; for the
    others there is what `SavedStorages` does.
    """

    def __init__(self, run: StepRun, owned: Owned, counter: LiveBytes | None) -> None:
        super().__init__(owned, run.hooks.parts.device, counter, run.hooks.guard)
        self._run = run
        self._plain = counter is None and not run.by_operators and not owned.gathered
        # Of what it is asked for, a mover that copies at once has nothing to do.
        self._returns_plainly = self._plain and not run.in_streams
        self._in_streams = run.in_streams

    @property
    def session(self) -> StepRun:
        """The step, which its guard is told of."""
        return self._run

    def enter(self) -> None:
        """Let autograd save handles in the calling thread until they are left."""
        mine = StepStorages.pack.__wrapped__, StepStorages.unpack  # type: ignore[attr-defined]
        keep_uncompiled(*mine, StepRun.saved, StorageEntry.__init__, Handle.__init__)
        super().enter()

    @guarded(SavedStorages._alone)
    def pack(self, tensor: torch.Tensor) -> Handle:
        """Return the handle that autograd holds instead of a tensor."""
        if (
            (type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter)
            or not self._plain
            or self.closed
            or tensor.layout is not torch.strided
            or tensor.device.type != self.device
            or tensor.is_nested
            or tensor.is_quantized
            or tensor.is_neg()
            or (tensor.dtype.is_complex and tensor.is_conj())
        ):
            return self._specially(tensor)
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return self._specially(tensor)
        address = storage._cdata
        held = self.owned.held
        if address in held and held[address]() is storage:
            return Handle(tensor, None)
        known = self.by_address[address]() if address in self.by_address else None
        if known is not None and known.address == address:
            if self._in_streams:
                self._run.saves()
            handle = Handle(tensor, known)
            known.handles.append(weakref.ref(handle))
        else:
            if self._in_streams:
                self._run.saves()
            entry = self._run.saved(storage.nbytes(), tensor)
            entry.address = address
            self.by_address[address] = weakref.ref(entry)
            handle = Handle(tensor, entry)
            entry.handles = [weakref.ref(handle)]
        return handle

    def _specially(self, tensor: torch.Tensor) -> Handle:
        found: Handle = uncompiled(SavedStorages._pack, self, tensor)
        return found

    def unpack(self, handle: Handle) -> torch.Tensor:
        """Return the tensor that autograd had saved; without it there are no right gradients."""
        tensor, data = handle.tensor, None
        if handle.stale or handle.whole is not None:
            pass
        elif tensor is not None:
            if self._plain and tensor._version == handle.version:
                return tensor.detach()
        elif self._returns_plainly and self._run.hooks.threads.local.saving is None:
            # Nothing that is made from it is saved for the step: nobody has to recognise it.
            entry, view = handle.entry, handle.view
            assert entry is not None
            assert view is not None
            data = entry.data
            if data is not None and data._version == entry.version:
                dtype, shape, stride, offset = view
                if entry.size % dtype.itemsize == 0:
                    return data.view(dtype).as_strided(shape, stride, offset)
        # It may leave in the midst of this: nothing here may hold it.
        tensor = data = None
        return super().unpack(handle)

    def saved(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> StorageEntry:
        """Return the entry that the step makes for it."""
        if self._in_streams:
            self._run.saves()
        return self._run.saved(storage.nbytes(), tensor)

    def saved_again(self, entry: StorageEntry) -> None:
        """Tell the step in which stream it is used, too."""
        self._run.saves()

    def asked_for(self, handle: Handle) -> None:
        """Tell the step."""
        if handle.entry is not None:
            self._run.count(UNPACK)

    def bring_back(self, handle: Handle) -> None:
        """Let the step bring it back if it has not yet."""
        entry = handle.entry
        if entry is not None:
            self._run.asked_for(entry)
            if entry.data is not None:
                # A tensor made from it may be saved: a gradient that can be differentiated.
                self.know(entry)
