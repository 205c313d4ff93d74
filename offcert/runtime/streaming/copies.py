"""Copies on the host that streams write and read.

No stream waits for another one here, and none has to: ``out`` begins after a point of ``compute``,
which has waited for every copy that anything still needs of the same bytes, in both directions
(`offcert.runtime.plan.timetable`).
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from offcert.runtime.device.interface import Arena, CopiedStorage, Device, Pinning
from offcert.runtime.device.pinned import SplitArena
from offcert.runtime.device.store import HostStore
from offcert.runtime.plan.host_layout import HostLayout
from offcert.runtime.streaming.staging import Staged, Staging
from offcert.runtime.watch.entries import Entry

Item = TypeVar("Item")


class Addresses(Generic[Item]):
    """Items that lie in an arena, of which none overlaps another."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._items: list[Item] = []

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def at(self, low: int) -> Item | None:
        """Return the item that begins at an address; None if none does."""
        place = bisect_left(self._lows, low)
        begins = place < len(self._lows) and self._lows[place] == low
        return self._items[place] if begins else None

    def met(self, low: int, high: int) -> list[Item]:
        """Return the items that have bytes between two addresses."""
        return self._items[self._stretch(low, high)]

    def put(self, low: int, high: int, item: Item) -> None:
        """Let an item lie between two addresses, instead of what has bytes there."""
        stretch = self._stretch(low, high)
        self._lows[stretch], self._highs[stretch] = [low], [high]
        self._items[stretch] = [item]

    def clear(self, low: int, high: int) -> None:
        """Forget items that have bytes between two addresses."""
        stretch = self._stretch(low, high)
        del self._lows[stretch], self._highs[stretch], self._items[stretch]

    def _stretch(self, low: int, high: int) -> slice:
        first = bisect_left(self._lows, low)
        if first > 0 and self._highs[first - 1] > low:
            first -= 1
        return slice(first, bisect_left(self._lows, high, first))


Key = TypeVar("Key", bound=Hashable)


class HostCopies(Generic[Key]):
    """The copies on the host of one step, and where they are.

    A step that follows its plan writes every copy where the layout says. The layout lets copies
    share bytes only if the plan does not need them at the same time. This class does not rely on
    that: before it writes, it looks at what lies there. A copy whose storage is still away is the
    only one there is, and is never written over; the new copy then goes into memory of its own
    outside of the arena, which is counted. Any other copy there is forgotten.
    """

    def __init__(self, layout: HostLayout[Key], store: HostStore) -> None:
        self.outside_entries, self.outside_bytes, self._offsets = 0, 0, layout.offsets
        self._overlapping, self._store = layout.overlapping, store
        self._inside: dict[Key, weakref.ref[Entry]] = {}
        self._outside: dict[Key, HostStore] = {}

    def keep(self, entry: Entry, storage: torch.UntypedStorage) -> bool:
        """Copy a storage that is on the device, unless there is a good copy; return whether it was.

        `x.data` can be changed without a trace, so all bytes of a copy are looked at.
        """
        if (entry.key in self._inside or entry.key in self._outside) and self.has(entry):
            there = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
            if torch.equal(self.view(entry), there):
                return False
        self.write(entry, storage)
        return True

    def write(self, entry: Entry, storage: torch.UntypedStorage | None = None) -> None:
        """Copy a storage that is on the device; there is a copy once all of it is written."""
        if entry.size == 0:
            return
        key, inside = entry.key, self._inside
        if storage is None:
            storage = entry.device_storage()
        if key not in self._outside:
            needed = False
            for other in self._overlapping[key]:
                if other in inside:
                    if self.is_needed(inside[other]):
                        needed = True
                    else:
                        del inside[other]
            if not needed:
                self._store.write(self._offsets[key], storage, entry.size)
                inside[key] = weakref.ref(entry)
                return
            self._outside[key] = self._store.another(entry.size)
            self.outside_entries += 1
            self.outside_bytes += entry.size
        # There is no copy while it is being written.
        apart = self._outside.pop(key)
        apart.write(0, storage, entry.size)
        self._outside[key] = apart

    def read(self, entry: Entry, data: torch.Tensor) -> None:
        """Fill a tensor of bytes with the copy of a storage."""
        store, offset = self._store, 0
        if entry.key in self._outside:
            store = self._outside[entry.key]
        elif entry.size:
            offset = self._offsets[entry.key]
        store.read(offset, data, entry.size)

    def has(self, entry: Entry) -> bool:
        """Whether there is a copy of a storage, of whatever age."""
        if entry.key in self._outside or entry.size == 0:
            return True
        reference = self._inside.get(entry.key)
        return reference is not None and reference() is entry

    def view(self, entry: Entry) -> torch.Tensor:
        """Return the copy of a storage, as a tensor over host memory."""
        if entry.key in self._outside:
            return self._outside[entry.key].view(0, entry.size)
        return self._store.view(self._offsets.get(entry.key, 0), entry.size)

    @staticmethod
    def is_needed(reference: weakref.ref[Entry]) -> bool:
        """Whether a copy is the only one: its storage is nowhere on the device."""
        entry = reference()
        return entry is not None and entry.away


@dataclass
class Copy:
    """Bytes in an arena, from `low` to before `high`, that belong to a storage.

    The entry is known once the copy has been handed over, and dead once autograd needs it no more.
    """

    arena: Arena
    low: int
    high: int
    entry: weakref.ref[Entry]

    @property
    def is_needed(self) -> bool:
        """Whether this is the only copy: its storage is nowhere on the device."""
        entry = self.entry()
        return entry is not None and entry.away

    @property
    def place(self) -> tuple[Arena, int]:
        """Where its bytes begin: in memory or in a file, and where there."""
        if isinstance(self.arena, SplitArena):
            return self.arena.locate(self.low)
        return self.arena, self.low


class StreamCopies(Generic[Key]):
    """Copies that streams have made on the host, and where they are.

    As in `offcert.runtime.streaming.copies`, copies lie where the layout says, and where one
    lies that is the only one of a storage, another one is not written but goes into memory of its
    own outside of the arena, which is counted, made by `apart` (by default the device, which
    registers it). Copies go to and from files by way of `staging`; without it the host waits for
    them. Once they are `closed`, nothing can leave any more.
    """

    def __init__(
        self,
        device: Device,
        layout: HostLayout[Key],
        arena: Arena,
        apart: Callable[[int], Arena] | None = None,
        staging: Staging[Key] | None = None,
    ) -> None:
        self.outside_entries, self.outside_bytes, self._device = 0, 0, device
        self._offsets, self.arena = layout.offsets, arena
        self._apart = device.arena if apart is None else apart
        self._staging = staging
        self._inside: Addresses[Copy] = Addresses()
        self._outside: dict[Key, Copy] = {}
        self.closed = False
        # Once they are closed: what autograd may still ask for.
        self._kept: weakref.WeakKeyDictionary[Entry, torch.Tensor] = weakref.WeakKeyDictionary()

    def begin(self) -> None:
        """Take note that a step begins to use them."""
        if self._staging is not None:
            self._staging.begin()

    @property
    def pinning(self) -> Pinning | None:
        """How far the arena has been registered."""
        return self.arena.pinning

    def room(self, entries: Sequence[Entry]) -> list[Copy]:
        """Return bytes of the host that storages can be copied to."""
        return [self._room(entry) for entry in entries if entry.size]

    def send(self, rows: Sequence[tuple[Entry, torch.Tensor]], copies: Sequence[Copy]) -> None:
        """Let ``out`` copy storages, given with their bytes, to the room that was made for them."""
        sized = [row for row in rows if row[0].size]
        staged, parts = self._sorted(sized, copies)
        if staged:
            assert self._staging is not None
            self._staging.send(staged, parts)
        else:
            self._device.copy_out(parts)
        for (entry, _), copy in zip(sized, copies, strict=True):
            copy.entry = weakref.ref(entry)

    def bring(self, rows: Sequence[tuple[Entry, torch.Tensor]]) -> None:
        """Let ``back`` fill bytes of the device with copies of storages."""
        sized = [row for row in rows if row[0].size]
        if self.closed:
            for entry, data in sized:
                data.copy_(self._kept[entry])
            return
        staged, parts = self._sorted(sized, [self._of(entry) for entry, _ in sized])
        if staged:
            assert self._staging is not None
            self._staging.bring(staged, parts)
        else:
            self._device.copy_back(parts)

    def _sorted(
        self, rows: Sequence[tuple[Entry, torch.Tensor]], copies: Sequence[Copy]
    ) -> tuple[list[tuple[Staged[Key], torch.Tensor]], list[CopiedStorage]]:
        """Return the copies that go by way of staging memory, and those that streams make."""
        staged, parts = [], []
        for (entry, data), copy in zip(rows, copies, strict=True):
            arena, offset = copy.place
            if self._staging is None or arena.registered:
                parts.append(CopiedStorage(data, arena, offset))
            else:
                staged.append((Staged(entry.key, arena, offset, entry.size), data))
        return staged, parts

    def has(self, entry: Entry) -> bool:
        """Whether there is a copy of a storage, of whatever age."""
        if entry.size == 0:
            return True
        apart = self._outside.get(entry.key)
        if apart is not None and apart.entry() is entry:
            return True
        inside = self._inside.at(self._offsets[entry.key])
        return inside is not None and inside.entry() is entry

    def close(self, *, keep_arena: bool = False) -> Arena:
        """Give the host's memory back, and return the arena, which another plan may `keep_arena`.

        No stream may be at work. What autograd may still ask for moves into ordinary memory.
        """
        copies = [*self._inside, *self._outside.values()]
        arenas = {id(copy.arena): copy.arena for copy in copies} | {id(self.arena): self.arena}
        if keep_arena:
            del arenas[id(self.arena)]
        with ExitStack() as stack:
            for arena in arenas.values():
                stack.callback(arena.close)
            stack.callback(self._forget)
            if self._staging is not None:
                stack.callback(self._staging.close)
                self._staging.settle()
            for copy in copies:
                entry = copy.entry()
                if entry is not None and entry.away:
                    size = copy.high - copy.low
                    self._kept[entry] = copy.arena.view(copy.low, size).clone()
        return self.arena

    def _forget(self) -> None:
        self.closed = True
        self._inside = Addresses()
        self._outside.clear()

    def _of(self, entry: Entry) -> Copy:
        apart = self._outside.get(entry.key)
        if apart is not None and apart.entry() is entry:
            return apart
        inside = self._inside.at(self._offsets[entry.key])
        assert inside is not None
        return inside

    def _room(self, entry: Entry) -> Copy:
        apart = self._outside.get(entry.key)
        copy = None if apart is not None else self._cleared(entry)
        if copy is None:
            copy = apart
        if copy is None:
            copy = Copy(self._apart(entry.size), 0, entry.size, _nobody)
            self._outside[entry.key] = copy
            self.outside_entries += 1
            self.outside_bytes += entry.size
        # Until it has been copied there again, this is no copy of anything.
        copy.entry = _nobody
        return copy

    def _cleared(self, entry: Entry) -> Copy | None:
        """Forget copies where another is to be written, unless one of them is needed."""
        low = self._offsets[entry.key]
        high = low + entry.size
        if any(each.is_needed for each in self._inside.met(low, high)):
            return None
        copy = Copy(self.arena, low, high, _nobody)
        self._inside.put(low, high, copy)
        return copy


class _Nobody:
    """Stands for a storage that is gone."""


_nobody: weakref.ref[Any] = weakref.ref(_Nobody())
