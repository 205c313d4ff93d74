"""Saved-tensor hooks of a user's model: one entry per storage, recognised by where it was saved."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch

from offcert.runtime.torch_private import (
    FRAMES,
    FRAMES_OF_PYTHON,
    kept_uncompiled,
    pop_saved_hooks,
    push_saved_hooks,
    top_saved_hooks,
)
from offcert.runtime.watch.entries import Handle, StorageEntry, is_plain
from offcert.runtime.watch.guard import GUARDED_CALL, RAISING, Guard, guarded
from offcert.runtime.watch.sharded import Gathered, Parts, Whole, local
from offcert.runtime.watch.tracker import LiveBytes


class Holder(Protocol):
    """An object that knows the hooks that have been entered in a thread."""

    saving: SavedStorages | None


def _take_out(pack: Any) -> bool:
    """Take hooks out of the calling thread's, given the first; return whether they were there."""
    above = []
    top = top_saved_hooks(True)
    while top is not None and top[0] != pack:
        above.append(top)
        pop_saved_hooks()
        top = top_saved_hooks(True)
    if top is not None:
        pop_saved_hooks()
    for each in reversed(above):
        push_saved_hooks(*each)
    return top is not None


def enter_saving(
    local: Holder, deviate: Callable[[str], None], storages: SavedStorages | None
) -> None:
    """Hand the tensors that autograd saves in the calling thread to a step, if possible."""
    leave_saving(local)
    if top_saved_hooks(True) is not None:
        deviate("other saved-tensor hooks are active around the model")
        return
    assert storages is not None
    try:
        storages.enter()
    except RuntimeError as error:
        deviate(f"saved-tensor hooks are not allowed here: {error}")
    else:
        local.saving = storages


def leave_saving(local: Holder) -> None:
    """Leave the hooks that have been entered, if any have."""
    entered, local.saving = local.saving, None
    if entered is not None:
        entered.leave()


def is_checkpointed() -> bool:
    """Whether the innermost saved-tensor hooks are those of a checkpoint."""
    top = top_saved_hooks(True)
    return top is not None and getattr(top[0], "__module__", "") == "torch.utils.checkpoint"


class SavedPlace(NamedTuple):
    """The marks by which a saved storage is recognised in another step.

    It was saved first during an operation, has a size in bytes, and the tensor that was saved first
    a data type and a shape; the operation had saved `ordinal` others of the same kind before.
    """

    operation: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    ordinal: int


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a data type without the library's."""
    return str(dtype).removeprefix("torch.")


_NOTHING = nullcontext()


class Owned:
    """The storages that a model holds (`held`, by address), or gathers: they are left alone."""

    def __init__(self, parts: Parts) -> None:
        # By address, and weakly: a buffer may be replaced while the model runs, and then its
        # address may be used again.
        self.held = parts.storages()
        self.gathered = Gathered(parts.sharded) if parts.sharded else ()

    def __contains__(self, storage: torch.UntypedStorage) -> bool:
        held = self.held.get(storage._cdata)
        return (held is not None and held() is storage) or storage in self.gathered


def uncompiled(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; where compiled code makes the call, keep the function out of the compiler.

    Telling the compiler to keep off takes several microseconds a call, and much longer to prepare;
    almost all calls come from where nothing is compiled.
    """
    seen: Any = sys.modules.get(FRAMES)
    if seen is None or seen.get_eval_frame_callback() is None:
        return function(*args)
    return _apart(function)(*args)


@cache
def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    return kept_uncompiled(function)


def keep_uncompiled(*functions: Any) -> None:
    """Keep the compiler from compiling functions that compiled code calls, not what they call."""
    seen: Any = sys.modules.get(FRAMES_OF_PYTHON)
    if seen is not None:
        for function in functions:
            seen.skip_code(function.__code__)


class SavedStorages:
    """The storages that autograd saves while the model's forward pass runs.

    Entries are held weakly: a storage dies when autograd releases the last handle on it. Storages
    of the model (`owned`) and of other devices, and tensors that are not plain strided ones, stay
    as they are; changes in place are detected for all. Kernels of a GPU may save tensors on the
    host, such as the seeds of an attention. Of a `DTensor` the part on this process moves. If a
    tracker counts operators, it must not count ours. What is saved once it is `closed` is left
    alone.
    """

    def __init__(
        self,
        owned: Owned,
        device: str,
        tracker: LiveBytes | None = None,
        guard: Guard = RAISING,
    ) -> None:
        self.owned, self.device, self.guard = owned, device, guard
        self.closed, self.tracker = False, tracker
        # Not a dictionary that forgets the dead: that costs more than all of them take.
        self.by_address: dict[int, weakref.ref[StorageEntry]] = {}

    def enter(self) -> None:
        """Let autograd save handles in the calling thread until they are left."""
        # Compiled code calls them, and would compile them, again and again.
        pack: Any = SavedStorages.pack
        keep_uncompiled(GUARDED_CALL, pack.__wrapped__, SavedStorages.unpack)
        push_saved_hooks(self.pack, self.unpack)

    def leave(self) -> None:
        """Leave the hooks, wherever they are among others of the calling thread.

        If another thread has entered them, it leaves them when autograd saves something next.
        """
        self.closed |= not _take_out(self.pack)

    def saved(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> StorageEntry:
        """Return the entry of a storage that is saved for the first time."""
        raise NotImplementedError

    def saved_again(self, entry: StorageEntry) -> None:
        """Take note that a storage has been saved once more."""

    def know(self, entry: StorageEntry) -> None:
        """Recognise an entry by the storage that it is in now."""
        entry.address = entry.device_storage()._cdata
        self.by_address[entry.address] = weakref.ref(entry)

    def asked_for(self, handle: Handle) -> None:
        """Take note that autograd asks for a tensor that it had saved."""

    def bring_back(self, handle: Handle) -> None:
        """See to it that the bytes are there."""

    def unpack(self, handle: Handle) -> torch.Tensor:
        """Return the tensor that autograd had saved; without it there are no right gradients."""
        found: torch.Tensor = uncompiled(type(self)._unpack, self, handle)
        return found

    def _unpack(self, handle: Handle) -> torch.Tensor:
        self._told(handle)
        self.bring_back(handle)
        if self.tracker is None:
            return handle.restore()
        with self.tracker.paused():
            return handle.restore()

    @guarded()
    def _told(self, handle: Handle) -> None:
        self.asked_for(handle)

    def _alone(self, tensor: torch.Tensor) -> Handle:
        """Return a handle on a tensor that stays where it is."""
        with nullcontext() if self.tracker is None else self.tracker.paused():
            return Handle(tensor, None)

    @guarded(_alone)
    def pack(self, tensor: torch.Tensor) -> Handle:
        """Return the handle that autograd holds instead of a tensor."""
        found: Handle = uncompiled(type(self)._pack, self, tensor)
        return found

    def _pack(self, tensor: torch.Tensor) -> Handle:
        if self.closed:
            # The context has ended in another thread, or while this one was within the model.
            _take_out(self.pack)
        part = local(tensor)
        entry = self._entry(part)
        # A `DTensor` whose part does not move stays as it is.
        saved = tensor if entry is None else part
        with _NOTHING if self.tracker is None else self.tracker.paused():
            handle = Handle(saved, entry)
            if saved is not tensor:
                handle.whole = Whole(tensor)
        if entry is not None:
            entry.add(handle)
        return handle

    def is_movable(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is an ordinary one of the device that the model does not hold."""
        return self._movable(tensor) is not None

    def _movable(self, tensor: torch.Tensor) -> torch.UntypedStorage | None:
        """Return the storage of a tensor that is movable."""
        if not is_plain(tensor) or tensor.device.type != self.device:
            return None
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            # Zero tensors and those of function transforms have none.
            return None
        return None if storage in self.owned else storage

    def _entry(self, tensor: torch.Tensor) -> StorageEntry | None:
        storage = None if self.closed else self._movable(tensor)
        if storage is None:
            return None
        address = storage._cdata
        known = self.by_address.get(address)
        entry = None if known is None else known()
        # An address may be used again once the storage of an offloaded entry has died.
        if entry is None or entry.address != address:
            entry = self.saved(storage, tensor)
            entry.address = address
            self.by_address[address] = weakref.ref(entry)
        else:
            self.saved_again(entry)
        return entry
