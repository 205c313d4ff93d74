"""Live bytes of device storages, counted as they are allocated and freed."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from offcert.runtime.torch_private import (
    FakeTensor,
    TorchDispatchMode,
    is_fake,
    storage_users,
)
from offcert.runtime.watch.guard import RAISING, Guard, guarded
from offcert.runtime.watch.operators import strided_tensors
from offcert.runtime.watch.sharded import Sharded, are_distributed, local

# Constructors such as torch.tensor() allocate below the dispatcher; the new storage is first seen
# as the argument of this operator.
_ADOPTING = {torch.ops.aten.lift_fresh.default}

# Seconds that are waited, at most, for threads to let go of what a collective has sent. Arbitrary.
_SETTLING = 0.05

Listener = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
Announcer = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
Allocated = Callable[[int, int], None]
Freed = Callable[[int], None]


@dataclass(slots=True, eq=False)
class StorageRecord:
    """One storage, from its allocation to its death, by the tracker's `now`.

    It has died when it was `excluded`, too: left out of the live bytes.
    """

    size: int
    born: int
    died: int | None = None
    excluded: bool = False
    reference: weakref.ref[torch.UntypedStorage] | None = None


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that are alive, for fake and real tensors alike.

    What is counted: every storage that an ATen operator returned while the tracker was counting,
    once, with all its bytes, from the moment the operator returned to the moment its last reference
    is dropped, however many tensors and views share it.

    What is not counted: storages of other kinds of devices (what hooks of the user's own hold on
    the host), storages that existed before (parameters, buffers, constants of the model), storages
    given to `exclude` (gradients once they are in ``parameter.grad``, the loss and its gradient
    once they are the caller's), and scratch that a kernel allocates and frees inside itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kind: str | None = None  # Of device ("cuda") whose storages count; None for all
        self.now = -1  # The number of the operation that runs; whoever drives the tracker sets it
        # Bytes alive, and the most at once since `start_peak`; those of them that are not on the
        # device (`leave`), and the most there since `start`.
        self.live, self.peak, self.away, self.most = 0, 0, 0, 0
        # Called before and after every operator that is counted.
        self.announcer: Announcer | None = None
        self.listener: Listener | None = None
        # Called with the address and the bytes of each storage before it counts, and with its
        # address once it counts no more. What the first raises is raised by the operator: there is
        # not so much memory.
        self.allocated: Allocated | None = None
        self.freed: Freed | None = None
        self.guard: Guard = RAISING
        # Sharded parameters count from when they are gathered until they are freed.
        self.sharded: Sharded | None = None
        self._begun: list[StorageRecord] = []
        self._sent: list[tuple[torch.UntypedStorage, int]] = []
        self._counting, self._fakes = False, False
        # Keyed by the address of the storage, which is unique while the storage lives.
        self._alive: dict[int, StorageRecord] = {}
        # Storages known not to count; weak references guard against reuse of the address.
        self._foreign: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let `torch.compile` work as without the mode; what it has compiled is counted."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` and account for its results."""
        kwargs = kwargs or {}
        if not self._counting:
            return func(*args, **kwargs)
        if are_distributed(types):
            # The operators come by that it consists of on this process.
            return NotImplemented
        self._before(func, args, kwargs)
        users = _users(args) if func.namespace == "c10d" else []
        out = func(*args, **kwargs)
        self._sent += users
        refused = self._after(func, args, kwargs, out)
        if refused is not None:
            try:
                raise refused
            finally:
                # Its traceback holds this frame.
                del refused
        return out

    @guarded()
    def _before(self, func: Any, args: Any, kwargs: Any) -> None:
        self.look()
        if self.announcer is not None:
            self.announcer(func, args, kwargs)
        if func not in _ADOPTING:
            for tensor in strided_tensors((args, kwargs)):
                self._meet(tensor.untyped_storage())

    @guarded()
    def _after(self, func: Any, args: Any, kwargs: Any, out: Any) -> Exception | None:
        """Account for what an operator has returned; return that there is no memory for it."""
        try:
            for tensor in strided_tensors(out):
                # A `DTensor` tries its operators on fake ones of the size of all processes' parts.
                if self._fakes or not isinstance(tensor, FakeTensor):
                    self.adopt(tensor)
        except torch.OutOfMemoryError as error:
            # The error that the operator itself would have raised.
            return error
        if self.listener is not None:
            self.listener(func, args, kwargs, out)
        return None

    def _meet(self, storage: torch.UntypedStorage) -> None:
        # A storage first seen as an argument is older than the count: it belongs to someone else.
        if self.record(storage) is None and not self._is_foreign(storage):
            self._set_foreign(storage)

    def _is_foreign(self, storage: torch.UntypedStorage) -> bool:
        reference = self._foreign.get(storage._cdata)
        return reference is not None and reference() is storage

    def _set_foreign(self, storage: torch.UntypedStorage) -> None:
        self._foreign[storage._cdata] = weakref.ref(storage)

    def adopt(self, tensor: torch.Tensor) -> StorageRecord | None:
        """Count the storage of `tensor` from now on.

        Return its record, or None if it does not count.
        """
        if self.kind is not None and tensor.device.type != self.kind:
            return None
        storage = tensor.untyped_storage()
        record = self.record(storage)
        if record is not None or self._is_foreign(storage):
            return record
        record = StorageRecord(storage.nbytes(), self.now)
        key = storage._cdata
        if self.allocated is not None:
            self.allocated(key, record.size)
        self.live += record.size
        self.peak = max(self.peak, self.live)
        self._is_in(storage, record)
        return record

    def look(self) -> list[StorageRecord]:
        """Count parameters that were gathered or freed meanwhile.

        Return the gathered ones' records.
        """
        if self._sent:
            self._settle()
        if self.sharded is None or not self._counting:
            return []
        grown, gone = [], []
        for storage in self.sharded.gathered():
            record, size = self._alive.get(storage._cdata), storage.nbytes()
            if size == (0 if record is None else record.size):
                continue
            if record is not None:
                gone.append((storage._cdata, record))
            if size:
                grown.append((storage, StorageRecord(size, max(0, self.now))))
        # Nobody has seen which came first: what is gathered may have been there beside the rest.
        for storage, record in grown:
            if self.allocated is not None:
                self.allocated(storage._cdata, record.size)
            self.live += record.size
            self.peak = max(self.peak, self.live)
        for key, record in gone:
            # The storage dies later, if ever.
            record.reference = None
            self._bury(key, record)
        for storage, record in grown:
            self._foreign.pop(storage._cdata, None)
            self._is_in(storage, record)
        found, self._begun = self._begun, []
        return found + [record for _, record in grown]

    def _settle(self) -> None:
        """Wait until threads that have sent storages for a collective hold them no more.

        They let go of them just after whoever waited for the collective goes on, so that it would
        be a matter of chance when the storages die.
        """
        sent, self._sent = self._sent, []
        end = time.monotonic() + _SETTLING
        for storage, users in sent:
            while storage_users(storage._cdata) > users and time.monotonic() < end:
                time.sleep(1e-5)

    def _is_in(self, storage: torch.UntypedStorage, record: StorageRecord) -> None:
        """Let a record be about a storage from now on, until that dies."""
        key = storage._cdata
        self._alive[key] = record

        def died(_: object, key: int = key, record: StorageRecord = record) -> None:
            self._is_dead(key, record)

        record.reference = weakref.ref(storage, died)
        self.most = max(self.most, self.live - self.away)

    def leave(self, storage: torch.UntypedStorage) -> StorageRecord | None:
        """Count the bytes of a storage as away: still alive, but no longer on the device.

        Returns the record, for `come_back` or `lose`; None if the storage does not count.
        """
        record = self.record(storage)
        if record is not None:
            record.reference = None
            del self._alive[storage._cdata]
            self.away += record.size
            self._is_freed(storage._cdata)
        return record

    def come_back(self, storage: torch.UntypedStorage, record: StorageRecord) -> None:
        """Let bytes that were away be in another storage."""
        if self.allocated is not None:
            self.allocated(storage._cdata, record.size)
        self.away -= record.size
        self._is_in(storage, record)

    def lose(self, record: StorageRecord) -> None:
        """Let bytes that are away be needed no more."""
        self.away -= record.size
        self.live -= record.size
        record.died = self.now

    @guarded()
    def _is_dead(self, key: int, record: StorageRecord) -> None:
        self._bury(key, record)

    def _bury(self, key: int, record: StorageRecord) -> None:
        if not record.excluded:
            record.died = self.now
            self.live -= record.size
            self._is_freed(key)
        if self._alive.get(key) is record:
            del self._alive[key]

    def _is_freed(self, key: int) -> None:
        if self.freed is not None:
            self.freed(key)

    def record(self, storage: torch.UntypedStorage) -> StorageRecord | None:
        """Return the record of a storage that is being counted, or None."""
        record = self._alive.get(storage._cdata)
        if record is None or record.excluded:
            return None
        return record

    def exclude(self, tensors: Iterable[torch.Tensor]) -> None:
        """Leave the storages of `tensors` out of the count from now on."""
        for tensor in tensors:
            tensor = local(tensor)
            if tensor.layout is not torch.strided:
                # Never counted, as a whole: the gradient of a sparse embedding.
                continue
            storage = tensor.untyped_storage()
            record = self.record(storage)
            if record is not None:
                record.excluded = True
                record.died = self.now
                self.live -= record.size
                self._is_freed(storage._cdata)
            self._set_foreign(storage)

    def need(self, scratch: int) -> None:
        """Count bytes that an operator takes beside those alive now, and gives back at once."""
        self.peak = max(self.peak, self.live + scratch)

    def start_peak(self) -> None:
        """Forget the peak so far."""
        self.peak = self.live

    def start(self, sharded: Sharded | None = None) -> None:
        """Forget every storage and count from zero; sharded parameters while they are gathered."""
        for key, record in self._alive.items():
            if not record.excluded:
                self._is_freed(key)
            # Its finalizer must not subtract from the new count.
            record.excluded = True
        self._alive = {}
        self._foreign = {}
        self.now = -1
        self.live = self.peak = 0
        self.away = self.most = 0
        self.sharded = sharded if sharded else None
        self._fakes = is_fake()
        self._begun, self._sent = [], []
        self._counting = True
        if sharded:
            begun = (self.adopt(each) for each in sharded.under_way())
            self._begun = [record for record in begun if record is not None and record.size]

    def stop(self) -> None:
        """Let operators pass uncounted; deaths of counted storages still count."""
        self._settle()
        self._counting = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count what the block allocates: it is host memory, or no allocation at all."""
        counting, self._counting = self._counting, False
        try:
            yield
        finally:
            self._counting = counting


def _users(values: Any) -> list[tuple[torch.UntypedStorage, int]]:
    """Return the storages of tensors, each with how many users it has now."""
    found = {each._cdata: each for each in (t.untyped_storage() for t in strided_tensors(values))}
    return [(each, storage_users(key)) for key, each in found.items()]
