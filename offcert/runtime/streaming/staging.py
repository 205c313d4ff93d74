"""Registered memory through which copies to and from files go, so that nobody waits for a file.

Streams copy to and from registered memory by themselves. A copy to or from a file they would make
the host wait for, which hands over nothing meanwhile. So ``out`` copies to a slot of a ring here,
and a thread of the host (a *clerk*) takes it from there to the file; another one reads ahead what
comes back next, and ``back`` copies it from its slot.

What waits for what, so that no byte is read or written too early:

1. The clerk that writes waits for ``out``, and for all reads that were ordered before: the bytes of
   the file may be those of a copy that is not needed any more.
2. The clerk that reads waits for the last write of each storage.
3. Before a slot is used again, whoever uses it waits until nobody does: ``out`` and ``back`` cannot
   wait for a clerk, so there the host does. That is when the file is behind by the whole ring.
4. Before ``back`` copies from a slot, the host waits for the clerk that reads into it. Usually
   it has: what comes back next is read as soon as there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from offcert.core.platform import Kind
from offcert.questions.schedule.residences import HOST_ALIGNMENT
from offcert.runtime.device.interface import Arena, CopiedStorage, Device, DeviceEvent


@dataclass(eq=False, slots=True)
class RingSlot:
    """A stretch of a ring.

    Once `used` is reached, nobody uses it; None while that is not known. If it is an event of a
    stream, streams can wait for it.
    """

    begin: int
    size: int
    used: DeviceEvent | None = None
    in_stream: bool = False


class Ring:
    """Gives out stretches of its bytes, each behind the one before, and then from the front."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._slots: list[RingSlot] = []

    def take(self, size: int) -> tuple[RingSlot, list[RingSlot]]:
        """Return a slot, and those that have to be out of use before it is used."""
        assert 0 < size <= self.size
        slot, gone = self._next(size)
        lost = {id(each) for each in gone}
        # What of them is not met stays, and so does one that is passed over where the ring begins
        # anew: who waits for these here need not be who comes there.
        self._slots = [
            part
            for each in self._slots
            for part in (_beside(each, slot) if id(each) in lost else [each])
        ]
        self._slots.append(slot)
        return slot, gone

    def gone(self, size: int) -> list[RingSlot]:
        """Return the slots that would have to be out of use for another one of some size."""
        return self._next(size)[1]

    def _next(self, size: int) -> tuple[RingSlot, list[RingSlot]]:
        begin = self._slots[-1].begin + self._slots[-1].size if self._slots else 0
        if begin + size > self.size:
            begin = 0
        gone = [
            each
            for each in self._slots
            if each.begin < begin + size and begin < each.begin + each.size
        ]
        return RingSlot(begin, size), gone


def _beside(old: RingSlot, new: RingSlot) -> list[RingSlot]:
    """Return the parts of a slot that another slot does not overlap."""
    end, last = new.begin + new.size, old.begin + old.size
    parts = [(old.begin, new.begin - old.begin), (end, last - end)]
    return [RingSlot(begin, size, old.used, old.in_stream) for begin, size in parts if size > 0]


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Staged(Generic[Key]):
    """A storage whose copy is in a file."""

    key: Key
    file: Arena
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Piece(Generic[Key]):
    """Bytes of a storage, and where they are in their slot."""

    row: int
    of: Staged[Key]
    begin: int
    size: int
    place: int


@dataclass(frozen=True, slots=True)
class _Read:
    """A copy that a clerk reads into a slot before it is asked for."""

    slot: RingSlot
    done: DeviceEvent


class Staging(Generic[Key]):
    """Copies between a device and files, by way of registered memory.

    That has at least twice `HOST_ALIGNMENT` bytes. Storages come back in a step in an order,
    transfer by transfer.
    """

    def __init__(self, device: Device, size: int, order: Sequence[Sequence[Staged[Key]]]) -> None:
        self._device = device
        self._order = [tuple(rows) for rows in order if rows]
        self._ring = Ring(size // HOST_ALIGNMENT * HOST_ALIGNMENT)
        self._arena = device.arena(self._ring.size)
        self._writer, self._reader = (device.clerk(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
        # Of each storage, the last write that was ordered in this step; and what was written, which
        # in a smaller step has fewer bytes than the order says.
        self._written: dict[Key, DeviceEvent] = {}
        self._sent: dict[Key, Staged[Key]] = {}
        self._writes: deque[DeviceEvent] = deque()
        self._last_read: DeviceEvent | None = None
        self._ahead: dict[tuple[Key, ...], _Read] = {}
        self._next = 0

    def begin(self) -> None:
        """Take note that a step begins, of which nothing has been copied yet."""
        self._written.clear()
        self._ahead.clear()
        self._next = 0

    def send(
        self, rows: Sequence[tuple[Staged[Key], torch.Tensor]], others: Sequence[CopiedStorage] = ()
    ) -> None:
        """Let ``out`` copy storages, and others that need no file, as one transfer if it can."""
        self._sent.update((row.key, row) for row, _ in rows)
        for pieces in self._batches([row for row, _ in rows]):
            self._forget({piece.of.key for piece in pieces})
            slot = self._slot(pieces)
            parts = self._parts(pieces, slot, [data for _, data in rows])
            self._device.copy_out([*others, *parts])
            others = ()
            copied = self._device.out.record()
            after = [copied] if self._last_read is None else [copied, self._last_read]
            for piece, part in zip(pieces, parts, strict=True):
                done = self._writer.copy(
                    (self._arena, part.offset),
                    (piece.of.file, piece.of.offset + piece.begin),
                    piece.size,
                    after,
                )
                self._written[piece.of.key] = slot.used = done
                self._writes.append(done)
        self._look_ahead()

    def bring(
        self, rows: Sequence[tuple[Staged[Key], torch.Tensor]], others: Sequence[CopiedStorage] = ()
    ) -> None:
        """Let ``back`` copy storages, and others that need no file, as one transfer if it can."""
        wanted = tuple(row.key for row, _ in rows)
        read = self._ahead.pop(wanted, None)
        for pieces in self._batches([row for row, _ in rows]):
            if read is None:
                read = self._read(pieces)
            read.done.wait_here()
            parts = self._parts(pieces, read.slot, [data for _, data in rows])
            self._device.copy_back([*others, *parts])
            others = ()
            read.slot.used, read.slot.in_stream = self._device.back.record(), True
            read = None
        self._came(wanted)
        self._look_ahead()

    def settle(self) -> None:
        """Wait until all files are written.

        Raise what went wrong in a thread, whoever was told before.
        """
        while self._writes:
            self._writes.popleft().wait_here()

    def close(self) -> None:
        """Give the registered memory back, and end the threads."""
        self._ahead.clear()
        with ExitStack() as stack:
            stack.callback(self._arena.close)
            stack.callback(self._reader.close)
            stack.callback(self._writer.close)

    def _batches(self, rows: Sequence[Staged[Key]]) -> Iterator[list[_Piece[Key]]]:
        """Yield pieces that are copied together: all, or as many as fit into half of the ring."""
        places = [0]
        for row in rows:
            places.append(places[-1] + _aligned(row.size))
        if places[-1] <= self._ring.size:
            yield [
                _Piece(number, row, 0, row.size, place)
                for number, (row, place) in enumerate(zip(rows, places, strict=False))
            ]
            return
        most = self._ring.size // 2 // HOST_ALIGNMENT * HOST_ALIGNMENT
        for number, row in enumerate(rows):
            for begin in range(0, row.size, most):
                yield [_Piece(number, row, begin, min(most, row.size - begin), 0)]

    def _parts(
        self, pieces: Sequence[_Piece[Key]], slot: RingSlot, data: Sequence[torch.Tensor]
    ) -> list[CopiedStorage]:
        return [
            CopiedStorage(
                data[piece.row][piece.begin : piece.begin + piece.size],
                self._arena,
                slot.begin + piece.place,
            )
            for piece in pieces
        ]

    def _slot(self, pieces: Sequence[_Piece[Key]]) -> RingSlot:
        """Return a slot that ``out`` may write once nobody else uses it."""
        slot, gone = self._ring.take(_extent(pieces))
        self._evict(gone)
        for each in gone:
            if each.used is None:
                self._settle_all()
            elif each.in_stream:
                self._device.out.wait(each.used)
            else:
                each.used.wait_here()
        return slot

    def _settle_all(self) -> None:
        """Wait for everybody: somebody was interrupted while a copy was being handed over."""
        for stream in (self._device.out, self._device.back):
            stream.record().wait_here()
        for clerk in (self._writer, self._reader):
            clerk.copy((self._arena, 0), (self._arena, 0), 0).wait_here()

    def _read(self, pieces: Sequence[_Piece[Key]]) -> _Read:
        """Let the clerk that reads fill a slot."""
        slot, gone = self._ring.take(_extent(pieces))
        self._evict(gone)
        after = [each.used for each in gone if each.used is not None]
        if len(after) < len(gone):
            self._settle_all()
        done: DeviceEvent | None = None
        for piece in pieces:
            written = self._written.get(piece.of.key)
            done = self._last_read = slot.used = self._reader.copy(
                (piece.of.file, piece.of.offset + piece.begin),
                (self._arena, slot.begin + piece.place),
                piece.size,
                after if written is None else [*after, written],
            )
        assert done is not None
        return _Read(slot, done)

    def _look_ahead(self) -> None:
        """Read the next storages ahead, as long as nobody has to wait for room."""
        while self._writes and self._writes[0].reached:
            self._writes.popleft()
        while self._next + len(self._ahead) < len(self._order):
            keys = _keys(self._order[self._next + len(self._ahead)])
            if keys in self._ahead or not all(key in self._written for key in keys):
                return
            rows = [self._sent[key] for key in keys]
            pieces = next(self._batches(rows))
            if len(pieces) < len(rows) or sum(p.size for p in pieces) < sum(r.size for r in rows):
                return
            slots = self._ring.gone(_extent(pieces))
            kept = {id(read.slot) for read in self._ahead.values()}
            if any(id(s) in kept or s.used is None or not s.used.reached for s in slots):
                return
            self._ahead[keys] = self._read(pieces)

    def _came(self, keys: tuple[Key, ...]) -> None:
        """Take note that a transfer has come, and those before it in the order never will."""
        for index in range(self._next, len(self._order)):
            if _keys(self._order[index]) == keys:
                for skipped in self._order[self._next : index]:
                    self._ahead.pop(_keys(skipped), None)
                self._next = index + 1
                return

    def _evict(self, gone: Sequence[RingSlot]) -> None:
        """Forget storages read ahead into slots that somebody else gets now."""
        lost = {id(slot) for slot in gone}
        for keys in [keys for keys, read in self._ahead.items() if id(read.slot) in lost]:
            del self._ahead[keys]

    def _forget(self, keys: set[Key]) -> None:
        """Forget storages read ahead that are written anew."""
        for each in [each for each in self._ahead if keys & set(each)]:
            del self._ahead[each]


def _keys(rows: Sequence[Staged[Key]]) -> tuple[Key, ...]:
    return tuple(row.key for row in rows)


def _aligned(size: int) -> int:
    return -(-size // HOST_ALIGNMENT) * HOST_ALIGNMENT


def _extent(pieces: Sequence[_Piece[Key]]) -> int:
    """Return the bytes of a slot for pieces."""
    return max(piece.place + _aligned(piece.size) for piece in pieces)
