"""The copies that one step has on the host: in the arena of its plan, or apart."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

import torch

from offcert.runtime.device.store import HostStore
from offcert.runtime.plan.host_layout import HostLayout
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
        self.outside_entries = 0
        self.outside_bytes = 0
        self._offsets = layout.offsets
        self._overlapping = layout.overlapping
        self._store = store
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
