"""Storages that take memory of the device: those it gave out, and those that a tracker counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from offcert.runtime.device.interface import MemoryReading
from offcert.runtime.watch.tracker import LiveBytes


class Allocator:
    """Gives out memory within a limit and takes it back; counts bytes now, and at their peak.

    It gives out every byte, as if memory could be moved together at any time.
    """

    def __init__(self, limit: int | None, name: str) -> None:
        self._limit, self._name = limit, name
        self._allocated = self._requested = self._reserved = 0
        self.reset_peaks()

    def take(self, size: int) -> Any:
        """Return a block of at least so many bytes.

        Raises
        ------
        torch.OutOfMemoryError
            If there is none.
        """
        self._reserve(size, size)
        self._allocate(size, size)
        return size

    def give_back(self, block: Any) -> None:
        """Take a block back."""
        self._reserved -= block
        self._allocate(-block, -block)

    def release(self) -> None:
        """Give segments back of which nothing is used."""

    def read(self) -> MemoryReading:
        """Return the bytes that are allocated and reserved, now and at their peak."""
        return MemoryReading(
            self._allocated,
            self._reserved,
            self._peak_allocated,
            self._peak_reserved,
            self._requested,
            self._peak_requested,
        )

    def reset_peaks(self) -> None:
        """Begin anew to look for the most bytes."""
        self._peak_allocated, self._peak_reserved = self._allocated, self._reserved
        self._peak_requested = self._requested

    def _allocate(self, size: int, asked: int) -> None:
        self._allocated += size
        self._peak_allocated = max(self._peak_allocated, self._allocated)
        self._requested += asked
        self._peak_requested = max(self._peak_requested, self._requested)

    def _reserve(self, size: int, asked: int) -> None:
        """Reserve bytes for what was asked for, if the limit has so many left."""
        if self._limit is not None and self._reserved + size > self._limit:
            raise torch.OutOfMemoryError(
                f"device {self._name} is out of memory: {asked} bytes were asked for, for which "
                f"{size} would be taken; of {self._limit}, {self._reserved} are taken and "
                f"{self._allocated} of these in use"
            )
        self._reserved += size
        self._peak_reserved = max(self._peak_reserved, self._reserved)


class Ledger:
    """The blocks of storages, by their addresses, which are unique while the storages live."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self._given_out: dict[int, Any] = {}
        self._counted: dict[int, Any] = {}

    def give_out(self, key: int, size: int) -> None:
        """Take memory for a storage of the device's own, until it has died."""
        counted = self._counted.pop(key, None)
        self._given_out[key] = self.allocator.take(size) if counted is None else counted

    def died(self, key: int) -> None:
        """Give back the memory of a storage of the device's own, if it is one."""
        self._give_back(self._given_out, key)

    def watch(self, tracker: LiveBytes) -> None:
        """Take memory for every storage that a tracker counts, as long as it does."""
        tracker.allocated = self._count
        tracker.freed = partial(self._give_back, self._counted)

    def _count(self, key: int, size: int) -> None:
        if key not in self._given_out and key not in self._counted:
            self._counted[key] = self.allocator.take(size)

    def _give_back(self, blocks: dict[int, Any], key: int) -> None:
        block = blocks.pop(key, None)
        if block is not None:
            self.allocator.give_back(block)
