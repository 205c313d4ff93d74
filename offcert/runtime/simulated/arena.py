"""Memory that a simulated device knows: the arena on the host, its budget and clerks, storages."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.interface import Arena, DeviceEvent, Pinning
from offcert.runtime.device.registration import RegistrationError
from offcert.runtime.simulated.races import HostUses, Uses
from offcert.runtime.simulated.streams import SimulatedEvent, SimulatedStream

# A byte that stands for freed memory: no number 1 in any floating type, -1 in signed integers, the
# largest in unsigned ones. Arbitrary.
BYTE = 0xFF


def poison(address: int, size: int) -> None:
    """Write poison over bytes of this process."""
    if size:
        ctypes.memset(address, BYTE, size)


def poisoned(size: int) -> torch.Tensor:
    """Return new memory that is poisoned throughout."""
    data = torch.empty(size, dtype=torch.uint8)
    poison(data.data_ptr(), size)
    return data


@dataclass(slots=True)
class KnownStorage:
    """A living storage, and the copies that have used it."""

    size: int  # Bytes
    born: int  # The number of its allocation in the work of ``compute``; 0 if operators made it
    uses: Uses  # By copies
    # To the storage: nothing here keeps it alive.
    reference: weakref.ref[torch.UntypedStorage] | None = None

    def address(self, offset: int, size: int) -> int | None:
        """Return the address of its bytes in this process, or None if it is gone."""
        storage = None if self.reference is None else self.reference()
        if storage is None or storage.nbytes() < offset + size:
            # Nobody has it any more, or it has been emptied in place.
            return None
        return storage.data_ptr() + offset


class Storages:
    """All living storages. torch keeps the Python object of each as long as the storage lives."""

    def __init__(self, streams: int, died: Callable[[int, KnownStorage], None]) -> None:
        self._streams = streams
        self._died = died
        # By address, which is unique while a storage lives.
        self._known: dict[int, KnownStorage] = {}

    def know(self, storage: torch.UntypedStorage, born: int = 0) -> KnownStorage:
        """Return the record of a storage; `born` counts if it is seen for the first time."""
        key = storage._cdata
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = KnownStorage(storage.nbytes(), born, Uses(self._streams))

            def died(_: object, key: int = key, known: KnownStorage = known) -> None:
                if self._known.get(key) is known:
                    del self._known[key]
                self._died(key, known)

            known.reference = weakref.ref(storage, died)
        return known

    def __len__(self) -> int:
        return len(self._known)


class SimulatedArena:
    """Memory of the host, used by some streams, poisoned until something is written to it.

    `closing` is called with it when it is given back.
    """

    def __init__(
        self, memory: Arena, streams: int, closing: Callable[[SimulatedArena], None]
    ) -> None:
        self.size = memory.size  # Bytes
        self.registered = memory.registered  # Whether streams copy to and from it by themselves
        self.where = memory.where  # Where its memory is
        self.pieces, self.pending, self.finish = memory.pieces, memory.pending, memory.finish
        self.closed = False  # Whether it has been given back
        # Ranges of addresses, with the copies that have used them.
        self.ranges = HostUses(self.size, streams)
        self._closing = closing
        self._memory = memory
        # Kept when it is given back: who looks at it then finds poison.
        self._data = memory.view(0, self.size)
        poison(self.address(0), self.size)

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it as a tensor over the same memory."""
        if self.closed:
            raise OffcertError("an arena is used after it has been given back")
        return self._data[offset : offset + size]

    @property
    def pinning(self) -> Pinning | None:
        """How far it has been registered."""
        return self._memory.pinning

    def address(self, offset: int) -> int:
        """Return the address of one of its bytes in this process."""
        return self._data.data_ptr() + offset

    def close(self) -> None:
        """Give the memory back; whoever has kept a view of it finds poison."""
        if not self.closed:
            self.closed = True
            self._closing(self)
            self._memory.close()
            poison(self.address(0), self.size)


class PinnedBudget:
    """How many bytes of the host may be registered (None: any), and how many are; a `Registrar`."""

    def __init__(self, limit: int | None, name: str) -> None:
        self.known: dict[int, int] = {}  # Registered memory: bytes by address
        self._limit = limit
        self._name = name

    @property
    def held(self) -> int:
        """Bytes that are registered."""
        return sum(self.known.values())

    def begin_thread(self) -> None:
        """Do nothing: any thread will do."""

    def register(self, address: int, size: int) -> None:
        """Take exactly so many bytes, unless there are not so many left: a `RegistrationError`."""
        if self._limit is not None and self.held + size > self._limit:
            raise RegistrationError(
                f"device {self._name} may register {self._limit} bytes of the host's memory and "
                f"holds {self.held} of them: no room for an arena of {size} bytes"
            )
        if address in self.known:
            raise OffcertError(f"device {self._name} has registered {size} bytes already")
        self.known[address] = size

    def unregister(self, address: int) -> None:
        """Give bytes back; as CUDA, it refuses those that it does not know."""
        if self.known.pop(address, None) is None:
            raise OffcertError(f"device {self._name} has not registered what is to be given back")

    def settle(self) -> None:
        """Do nothing: that copies have ended is looked at when an arena is closed."""


@dataclass(slots=True)
class PendingCopy:
    """One storage of a copy, to be carried out later."""

    outwards: bool
    known: KnownStorage
    begin: int
    arena: SimulatedArena
    offset: int
    size: int

    def run(self) -> None:
        """Copy; what is gone on one side is poison on the other, or lost."""
        there = self.known.address(self.begin, self.size)
        here = None if self.arena.closed else self.arena.address(self.offset)
        target, source = (here, there) if self.outwards else (there, here)
        if target is None or self.size == 0:
            return
        if source is None:
            poison(target, self.size)
        else:
            ctypes.memmove(target, source, self.size)


class SimulatedDone(SimulatedEvent):
    """A flag: whether a clerk has made a copy, or which error came instead."""

    __slots__ = ("errors",)

    def __init__(self, stream: SimulatedStream, errors: list[Exception]) -> None:
        super().__init__(stream)
        self.errors = errors

    @property
    def reached(self) -> bool:
        """Whether it is known to have been made."""
        return super().reached and not self.errors

    def wait_here(self) -> None:
        """Carry it out; raise what went wrong."""
        super().wait_here()
        for error in self.errors:
            raise error


class SimulatedClerk:
    """Copies when somebody waits for it, or when the device's adversary says so. It takes no time.

    `note` is called with each stretch of the host that it uses: arena, address, bytes, and whether
    it writes.
    """

    def __init__(
        self,
        stream: SimulatedStream,
        note: Callable[[SimulatedArena, int, int, bool], None],
    ) -> None:
        self._stream = stream
        self._note = note
        self._closed = False

    def copy(
        self,
        source: tuple[Arena, int],
        target: tuple[Arena, int],
        size: int,
        after: Sequence[DeviceEvent] = (),
    ) -> SimulatedDone:
        """Let bytes be copied once events have been reached."""
        if self._closed:
            raise OffcertError("a copying thread is told to copy after it has been closed")
        for event in after:
            self._stream.wait(event)
        self._stream.work(0)
        errors: list[Exception] = []
        places = []
        for (arena, at), writes in ((source, False), (target, True)):
            assert isinstance(arena, SimulatedArena)
            self._note(arena, at, size, writes)
            places.append((arena, at))
        (there, begin), (here, to) = places

        def job() -> None:
            failed = [error for event in after for error in getattr(event, "errors", ())]
            if failed:
                errors.append(failed[0])
                return
            try:
                self.carry(there, begin, here, to, size)
            except Exception as error:
                errors.append(error)

        self._stream.enqueue(job)
        return SimulatedDone(self._stream, errors)

    def carry(
        self, source: SimulatedArena, begin: int, target: SimulatedArena, to: int, size: int
    ) -> None:
        """Copy bytes; tests let this fail."""
        if source.closed or target.closed:
            raise OffcertError(
                "a copying thread copies bytes of a host buffer that has been given back"
            )
        ctypes.memmove(target.address(to), source.address(begin), size)

    def close(self) -> None:
        """Carry out all it was told."""
        if not self._closed:
            self._closed = True
            self._stream.record().wait_here()
