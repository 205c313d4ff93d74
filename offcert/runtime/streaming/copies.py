"""Copies on the host that streams write and read.

No stream waits for another one here, and none has to: ``out`` begins after a point of ``compute``,
which has waited for every copy that anything still needs of the same bytes, in both directions
(`offcert.runtime.plan.timetable`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack
from typing import Generic, TypeVar

import torch

from offcert.runtime.device.host import HostStore
from offcert.runtime.device.interface import Arena, CopiedStorage, Device
from offcert.runtime.device.pinned import SplitArena
from offcert.runtime.plan.host_layout import HostLayout
from offcert.runtime.streaming.staging import Staged, Staging
from offcert.runtime.watch.entries import StorageEntry

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
        self._inside: dict[Key, weakref.ref[StorageEntry]] = {}
        self._outside: dict[Key, HostStore] = {}

    def keep(self, entry: StorageEntry, storage: torch.UntypedStorage) -> bool:
        """Copy a storage that is on the device, unless there is a good copy; return whether it was.

        `x.data` can be changed without a trace, so all bytes of a copy are looked at.
        """
        if (entry.key in self._inside or entry.key in self._outside) and self.has(entry):
            there = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
            if torch.equal(self.view(entry), there):
                return False
        self.write(entry, storage)
        return True

    def write(self, entry: StorageEntry, storage: torch.UntypedStorage | None = None) -> None:
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

    def read(self, entry: StorageEntry, data: torch.Tensor) -> None:
        """Fill a tensor of bytes with the copy of a storage."""
        store, offset = self._store, 0
        if entry.key in self._outside:
            store = self._outside[entry.key]
        elif entry.size:
            offset = self._offsets[entry.key]
        store.read(offset, data, entry.size)

    def has(self, entry: StorageEntry) -> bool:
        """Whether there is a copy of a storage, of whatever age."""
        if entry.key in self._outside or entry.size == 0:
            return True
        reference = self._inside.get(entry.key)
        return reference is not None and reference() is entry

    def view(self, entry: StorageEntry) -> torch.Tensor:
        """Return the copy of a storage, as a tensor over host memory."""
        if entry.key in self._outside:
            return self._outside[entry.key].view(0, entry.size)
        return self._store.view(self._offsets.get(entry.key, 0), entry.size)

    @staticmethod
    def is_needed(reference: weakref.ref[StorageEntry]) -> bool:
        """Whether a copy is the only one: its storage is nowhere on the device."""
        entry = reference()
        return entry is not None and entry.away


class StreamCopies(Generic[Key]):
    """Copies that streams have made on the host, and where they are.

    As above, copies lie where the layout says, and where one lies that is the only one of a
    storage, another one is not written but goes into memory of its own outside of the arena, which
    is counted, made by `apart` (by default the device, which registers it). Copies go to and from
    files by way of `staging`; without it the host waits for them. Once they are `closed`, nothing
    can leave any more.
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
        self._offsets, self._overlapping = layout.offsets, layout.overlapping
        self.arena, self._staging = arena, staging
        self._apart = device.arena if apart is None else apart
        # The storages of which there is a copy, and the arenas of those outside.
        self._held: dict[Key, weakref.ref[StorageEntry]] = {}
        self._outside: dict[Key, Arena] = {}
        self.closed = False
        # Once they are closed: what autograd may still ask for.
        self._kept: weakref.WeakKeyDictionary[StorageEntry, torch.Tensor] = (
            weakref.WeakKeyDictionary()
        )

    def begin(self) -> None:
        """Take note that a step begins to use them."""
        if self._staging is not None:
            self._staging.begin()

    def make_room(self, entries: Iterable[StorageEntry]) -> None:
        """See to it that the host has bytes that storages can be copied to.

        Until they have been copied there again, there are no copies of them.
        """
        for entry in entries:
            self._held.pop(entry.key, None)
            if entry.size == 0 or entry.key in self._outside:
                continue
            others = self._overlapping[entry.key]
            met = [key for key in others if key in self._held and key not in self._outside]
            if any(HostCopies.is_needed(self._held[key]) for key in met):
                self._outside[entry.key] = self._apart(entry.size)
                self.outside_entries += 1
                self.outside_bytes += entry.size
                continue
            for key in met:
                del self._held[key]

    def send(self, rows: Sequence[tuple[StorageEntry, torch.Tensor]]) -> None:
        """Let ``out`` copy storages, given with their bytes, for which room has been made."""
        sized = [row for row in rows if row[0].size]
        staged, parts = self._sorted(sized)
        if staged:
            assert self._staging is not None
            self._staging.send(staged, parts)
        else:
            self._device.copy_out(parts)
        for entry, _ in sized:
            self._held[entry.key] = weakref.ref(entry)

    def bring(self, rows: Sequence[tuple[StorageEntry, torch.Tensor]]) -> None:
        """Let ``back`` fill bytes of the device with copies of storages."""
        sized = [row for row in rows if row[0].size]
        if self.closed:
            for entry, data in sized:
                data.copy_(self._kept[entry])
            return
        staged, parts = self._sorted(sized)
        if staged:
            assert self._staging is not None
            self._staging.bring(staged, parts)
        else:
            self._device.copy_back(parts)

    def _sorted(
        self, rows: Sequence[tuple[StorageEntry, torch.Tensor]]
    ) -> tuple[list[tuple[Staged[Key], torch.Tensor]], list[CopiedStorage]]:
        """Return the copies that go by way of staging memory, and those that streams make."""
        staged, parts = [], []
        for entry, data in rows:
            arena, offset = self._place(entry.key)
            if self._staging is None or arena.registered:
                parts.append(CopiedStorage(data, arena, offset))
            else:
                staged.append((Staged(entry.key, arena, offset, entry.size), data))
        return staged, parts

    def _place(self, key: Key) -> tuple[Arena, int]:
        """Return where the copy of a storage begins: in memory or in a file, and where there."""
        if key in self._outside:
            return self._outside[key], 0
        offset = self._offsets[key]
        if isinstance(self.arena, SplitArena):
            return self.arena.locate(offset)
        return self.arena, offset

    def has(self, entry: StorageEntry) -> bool:
        """Whether there is a copy of a storage, of whatever age."""
        held = self._held.get(entry.key)
        return entry.size == 0 or (held is not None and held() is entry)

    def close(self, *, keep_arena: bool = False) -> Arena:
        """Give the host's memory back, and return the arena, which another plan may `keep_arena`.

        No stream may be at work. What autograd may still ask for moves into ordinary memory.
        """
        arenas = [*self._outside.values(), *([] if keep_arena else [self.arena])]
        with ExitStack() as stack:
            for arena in arenas:
                stack.callback(arena.close)
            stack.callback(self._forget)
            if self._staging is not None:
                stack.callback(self._staging.close)
                self._staging.settle()
            for key, held in self._held.items():
                entry = held()
                if entry is not None and entry.away:
                    where, offset = self._place(key)
                    self._kept[entry] = where.view(offset, entry.size).clone()
        return self.arena

    def _forget(self) -> None:
        self.closed = True
        self._held.clear()
        self._outside.clear()
