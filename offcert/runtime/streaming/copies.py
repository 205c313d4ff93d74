"""Copies on the host that streams write and read: nothing is written over before its time."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch

from offcert.runtime.device.interface import Arena, Device, Event, Part
from offcert.runtime.host_layout import HostLayout
from offcert.runtime.saved import Entry

Key = TypeVar("Key", bound=Hashable)


@dataclass
class _Copy:
    """Bytes in an arena that belong to a storage.

    Attributes
    ----------
    arena : Arena
        Where they are.
    low, high : int
        Their first address there, and the one after their last.
    entry : weak reference
        To the storage; dead once autograd needs it no more.
    events : list of Event
        After which nothing writes or reads them any more.
    """

    arena: Arena
    low: int
    high: int
    entry: weakref.ref[Entry]
    events: list[Event] = field(default_factory=list)

    @property
    def is_needed(self) -> bool:
        """Whether this is the only copy: its storage is nowhere on the device."""
        entry = self.entry()
        return entry is not None and entry.away


class StreamCopies(Generic[Key]):
    """What streams have copied to the host, and where that is.

    As in `offcert.runtime.host_copies`, copies lie where the layout says, and where one lies that
    is the only one of a storage, another one is not written but goes into memory of its own,
    outside of the arena. Streams begin to write where others lay when those have been written and
    read.

    Parameters
    ----------
    device : Device
        Whose streams copy.
    layout : HostLayout
        Of the plan.
    arena : Arena
        Of exactly the layout's bytes.

    Attributes
    ----------
    outside_entries, outside_bytes : int
        Copies outside of the arena.
    """

    def __init__(self, device: Device, layout: HostLayout[Key], arena: Arena) -> None:
        self.outside_entries = 0
        self.outside_bytes = 0
        self._device = device
        self._offsets = layout.offsets
        self._arena = arena
        # Copies in the arena by their addresses; none overlaps another.
        self._lows: list[int] = []
        self._inside: list[_Copy] = []
        self._outside: dict[Key, _Copy] = {}

    def send(self, rows: Sequence[tuple[Entry, torch.Tensor]]) -> Event:
        """Let ``out`` copy storages, given with their bytes, to the host; return when it has."""
        copies = [self._made(entry) for entry, _ in rows if entry.size]
        parts = [
            Part(data, copy.arena, copy.low)
            for copy, (_, data) in zip(copies, (row for row in rows if row[0].size), strict=True)
        ]
        self._device.copy_out(parts)
        event = self._device.out.record()
        for copy in copies:
            copy.events = [event]
        return event

    def bring(self, rows: Sequence[tuple[Entry, torch.Tensor]]) -> Event:
        """Let ``back`` fill bytes of the device with copies of storages; return when it has."""
        back, parts, copies = self._device.back, [], []
        for entry, data in rows:
            if entry.size:
                copy = self._of(entry)
                for event in copy.events:
                    back.wait(event)
                parts.append(Part(data, copy.arena, copy.low))
                copies.append(copy)
        self._device.copy_back(parts)
        event = back.record()
        for copy in copies:
            copy.events.append(event)
        return event

    def has(self, entry: Entry) -> bool:
        """Whether there is a copy of a storage, of whatever age."""
        if entry.key in self._outside or entry.size == 0:
            return True
        place = bisect_left(self._lows, self._offsets[entry.key])
        return place < len(self._inside) and self._inside[place].entry() is entry

    def arenas(self) -> Iterator[Arena]:
        """Yield the arenas outside of the plan's."""
        return (copy.arena for copy in self._outside.values())

    def _of(self, entry: Entry) -> _Copy:
        apart = self._outside.get(entry.key)
        if apart is not None:
            return apart
        return self._inside[bisect_left(self._lows, self._offsets[entry.key])]

    def _made(self, entry: Entry) -> _Copy:
        """Return bytes to copy a storage to; ``out`` has been told to wait until they are free."""
        copy = self._outside.get(entry.key) or self._cleared(entry)
        if copy is None:
            copy = _Copy(self._device.arena(entry.size), 0, entry.size, weakref.ref(entry))
            self._outside[entry.key] = copy
            self.outside_entries += 1
            self.outside_bytes += entry.size
        for event in copy.events:
            self._device.out.wait(event)
        copy.entry = weakref.ref(entry)
        return copy

    def _cleared(self, entry: Entry) -> _Copy | None:
        """Forget what lies where a copy is to be written, unless some of it is needed."""
        low = self._offsets[entry.key]
        high = low + entry.size
        first = bisect_left(self._lows, low)
        if first > 0 and self._inside[first - 1].high > low:
            first -= 1
        last = bisect_left(self._lows, high, first)
        found = self._inside[first:last]
        if any(each.is_needed for each in found):
            return None
        copy = _Copy(self._arena, low, high, weakref.ref(entry))
        # Of one copy that is replaced in parts, all parts must wait for its events: keep them.
        copy.events = [event for each in found for event in each.events]
        rest = [piece for each in found for piece in _around(each, low, high)]
        pieces = sorted([*rest, copy], key=lambda each: each.low)
        self._inside[first:last] = pieces
        self._lows[first:last] = [each.low for each in pieces]
        return copy


def _around(copy: _Copy, low: int, high: int) -> Iterator[_Copy]:
    """Yield what is left of a copy on both sides of a stretch: it belongs to nobody now."""
    for begin, end in ((copy.low, low), (high, copy.high)):
        if begin < end:
            yield _Copy(copy.arena, begin, end, _nobody, copy.events)


class _Nobody:
    """Stands for a storage that is gone."""


_nobody: weakref.ref[Any] = weakref.ref(_Nobody())
