"""Which storages take memory of the device: those it gave out, and those that a tracker counts."""

from __future__ import annotations

from offcert.runtime.device.interface import MemoryReading
from offcert.runtime.device.simulated.allocator import Allocator, Block
from offcert.runtime.tracker import LiveBytes


class Ledger:
    """The blocks of storages, by their addresses, which are unique while the storages live.

    Parameters
    ----------
    allocator : Allocator
        Which gives out the blocks.
    """

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._given_out: dict[int, Block] = {}
        self._counted: dict[int, Block] = {}

    def give_out(self, key: int, size: int) -> None:
        """Take memory for a storage of the device's own, until it has died."""
        counted = self._counted.pop(key, None)
        self._given_out[key] = self._allocator.take(size) if counted is None else counted

    def died(self, key: int) -> None:
        """Give back the memory of a storage of the device's own, if it is one."""
        block = self._given_out.pop(key, None)
        if block is not None:
            self._allocator.give_back(block)

    def watch(self, tracker: LiveBytes) -> None:
        """Take memory for every storage that a tracker counts, as long as it does."""
        tracker.allocated = self._allocated
        tracker.freed = self._freed

    def _allocated(self, key: int, size: int) -> None:
        if key not in self._given_out and key not in self._counted:
            self._counted[key] = self._allocator.take(size)

    def _freed(self, key: int) -> None:
        block = self._counted.pop(key, None)
        if block is not None:
            self._allocator.give_back(block)

    def read(self) -> MemoryReading:
        """Return what is taken."""
        return self._allocator.read()

    def release(self) -> None:
        """Give segments back of which nothing is used."""
        self._allocator.release()

    def reset_peaks(self) -> None:
        """Begin anew to look for the most bytes."""
        self._allocator.reset_peaks()
