"""Copies on the host that streams write and read.

No stream waits for another one here, and none has to: ``out`` begins after a point of ``compute``,
which has waited for every copy that anything still needs of the same bytes, in both directions
(`offcert.runtime.plan.timetable`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from offcert.runtime.device.interface import Arena, CopiedStorage, Device, Pinning
from offcert.runtime.device.pinned import SplitArena
from offcert.runtime.plan.host_layout import HostLayout
from offcert.runtime.streaming.host_copies import Addresses
from offcert.runtime.streaming.staging import Staged, Staging
from offcert.runtime.watch.entries import Entry

Key = TypeVar("Key", bound=Hashable)


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

    As in `offcert.runtime.streaming.host_copies`, copies lie where the layout says, and where one
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
        self.outside_entries = 0
        self.outside_bytes = 0
        self._device = device
        self._offsets = layout.offsets
        self.arena = arena
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
