"""Storages that take memory of the device: those it gave out, and those that a tracker counts."""

from __future__ import annotations

from bisect import bisect_left, insort
from enum import StrEnum
from functools import partial

import torch

from offcert.runtime.device.interface import MemoryReading
from offcert.runtime.watch.tracker import LiveBytes

# Bytes in granules: the largest small storage, the segments for small and for large ones, the least
# storage with a segment of its own, the unit of those. Given by PyTorch's allocator, whose granule
# is 512 bytes.
_LARGEST_SMALL = 2048
_SMALL_SEGMENT = 4096
_LARGE_SEGMENT = 40960
_OWN_SEGMENT = 20480
_SEGMENT_UNIT = 4096


class Policy(StrEnum):
    """How memory is given out."""

    CACHING = "caching"
    IDEAL = "ideal"


class MemoryBlock:
    """A stretch of a segment, between the stretches before and after it."""

    __slots__ = ("address", "after", "asked", "before", "free", "size", "small")

    def __init__(self, address: int, size: int, small: bool) -> None:
        self.address = address
        self.size = size
        # Bytes of it that were asked for.
        self.asked = 0
        self.small = small
        self.free = True
        self.before: MemoryBlock | None = None
        self.after: MemoryBlock | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its segment."""
        return self.before is None and self.after is None

    def take_in(self, after: MemoryBlock) -> None:
        """Let it be one with the block after it."""
        self.size += after.size
        self.after = after.after
        if after.after is not None:
            after.after.before = self


class Allocator:
    """Gives out memory within a limit and takes it back; counts bytes now, and at their peak."""

    def __init__(self, limit: int | None, name: str) -> None:
        self._limit, self._name = limit, name
        self._allocated = self._requested = self._reserved = 0
        self.reset_peaks()

    def take(self, size: int) -> MemoryBlock:
        """Return a block of at least so many bytes.

        Raises
        ------
        torch.OutOfMemoryError
            If there is none.
        """
        raise NotImplementedError

    def give_back(self, block: MemoryBlock) -> None:
        """Take a block back."""
        raise NotImplementedError

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


class IdealAllocator(Allocator):
    """Gives out every byte of the limit, as if memory could be moved together at any time."""

    def take(self, size: int) -> MemoryBlock:
        """Return a block of exactly so many bytes; it has no address."""
        self._reserve(size, size)
        self._allocate(size, size)
        return MemoryBlock(0, size, False)

    def give_back(self, block: MemoryBlock) -> None:
        """Take a block back."""
        self._reserved -= block.size
        self._allocate(-block.size, -block.size)


class CachingAllocator(Allocator):
    """Gives out memory as PyTorch does on CUDA, and falls to pieces as that does."""

    def __init__(self, limit: int | None, name: str, granule: int = 512) -> None:
        super().__init__(limit, name)
        self._granule = granule
        # Free blocks of large (0) and small (1) segments, smallest first.
        self._free: tuple[list[tuple[int, int]], ...] = ([], [])
        self._by_address: dict[int, MemoryBlock] = {}
        self._end = 0

    def take(self, size: int) -> MemoryBlock:
        """Return a block of at least so many bytes (rules 1 to 4)."""
        if size == 0:
            return MemoryBlock(0, 0, False)
        rounded = -(-size // self._granule) * self._granule
        small = rounded <= _LARGEST_SMALL * self._granule
        block = self._best(rounded, small)
        if block is None:
            block = self._segment(size, rounded, small)
        left = block.size - rounded
        if left >= self._granule if small else left > _LARGEST_SMALL * self._granule:
            self._cut(block, rounded)
        block.free, block.asked = False, size
        self._allocate(block.size, size)
        return block

    def give_back(self, block: MemoryBlock) -> None:
        """Take a block back, and join it with its free neighbours (rule 5)."""
        if block.size == 0:
            return
        self._allocate(-block.size, -block.asked)
        before, after = block.before, block.after
        if after is not None and after.free:
            self._forget(after)
            block.take_in(after)
        if before is not None and before.free:
            self._forget(before)
            before.take_in(block)
            block = before
        self._keep(block)

    def release(self) -> None:
        """Give segments back of which nothing is used."""
        for block in [each for each in self._by_address.values() if each.is_whole]:
            self._forget(block)
            self._reserved -= block.size

    def _best(self, size: int, small: bool) -> MemoryBlock | None:
        free = self._free[small]
        place = bisect_left(free, (size, 0))
        if place == len(free):
            return None
        return self._by_address.pop(free.pop(place)[1])

    def _segment(self, asked: int, rounded: int, small: bool) -> MemoryBlock:
        unit = _SEGMENT_UNIT * self._granule
        if small:
            size = _SMALL_SEGMENT * self._granule
        elif rounded < _OWN_SEGMENT * self._granule:
            size = _LARGE_SEGMENT * self._granule
        else:
            size = -(-rounded // unit) * unit
        if self._limit is not None and self._reserved + size > self._limit:
            self.release()
        self._reserve(size, asked)
        block = MemoryBlock(self._end, size, small)
        self._end += size
        return block

    def _cut(self, block: MemoryBlock, size: int) -> None:
        rest = MemoryBlock(block.address + size, block.size - size, block.small)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        self._keep(rest)

    def _keep(self, block: MemoryBlock) -> None:
        block.free = True
        insort(self._free[block.small], (block.size, block.address))
        self._by_address[block.address] = block

    def _forget(self, block: MemoryBlock) -> None:
        free = self._free[block.small]
        del free[bisect_left(free, (block.size, block.address))]
        del self._by_address[block.address]


def allocator(policy: Policy, limit: int | None, name: str, granule: int) -> Allocator:
    """Return an allocator for a device."""
    if policy is Policy.IDEAL:
        return IdealAllocator(limit, name)
    return CachingAllocator(limit, name, granule)


class Ledger:
    """The blocks of storages, by their addresses, which are unique while the storages live."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self._given_out: dict[int, MemoryBlock] = {}
        self._counted: dict[int, MemoryBlock] = {}

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

    def _give_back(self, blocks: dict[int, MemoryBlock], key: int) -> None:
        block = blocks.pop(key, None)
        if block is not None:
            self.allocator.give_back(block)
