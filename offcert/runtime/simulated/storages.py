"""Storages on the device that copies have to do with, from when they are known to their death."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

import torch

from offcert.runtime.simulated.races import Uses

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


class Known:
    """One storage.

    Attributes
    ----------
    size : int
        Bytes.
    born : int
        The number of the allocation in the work of ``compute``; 0 if operators made it.
    uses : Uses
        By copies.
    reference : weakref.ref
        To the storage: nothing here keeps it alive.
    """

    __slots__ = ("born", "reference", "size", "uses")

    def __init__(self, size: int, born: int, streams: int) -> None:
        self.size = size
        self.born = born
        self.uses = Uses(streams)
        self.reference: weakref.ref[torch.UntypedStorage] | None = None

    def address(self, offset: int, size: int) -> int | None:
        """Return where bytes of it lie in this process, if it is there."""
        storage = None if self.reference is None else self.reference()
        if storage is None or storage.nbytes() < offset + size:
            # Nobody has it any more, or it has been emptied in place.
            return None
        return storage.data_ptr() + offset


class Storages:
    """All that live. A storage's Python object lives as long as the storage, as torch keeps it.

    Parameters
    ----------
    streams : int
        How many use them.
    died : callable
        Called with the address and with what was known of a storage that has died.
    """

    def __init__(self, streams: int, died: Callable[[int, Known], None]) -> None:
        self._streams = streams
        self._died = died
        # By address, which is unique while a storage lives.
        self._known: dict[int, Known] = {}

    def know(self, storage: torch.UntypedStorage, born: int = 0) -> Known:
        """Return the record of a storage; `born` counts if it is seen for the first time."""
        key = storage._cdata
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Known(storage.nbytes(), born, self._streams)

            def died(_: object, key: int = key, known: Known = known) -> None:
                if self._known.get(key) is known:
                    del self._known[key]
                self._died(key, known)

            known.reference = weakref.ref(storage, died)
        return known

    def __len__(self) -> int:
        return len(self._known)
