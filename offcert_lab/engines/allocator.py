"""A simulated device's memory as PyTorch's allocator gives it out on CUDA."""

from __future__ import annotations

from bisect import bisect_left, insort

from offcert.runtime.simulated.allocator import Allocator

# Bytes in granules: the largest small storage, the segments for small and for large ones, the least
# storage with a segment of its own, the unit of those. Given by PyTorch's allocator, whose granule
# is 512 bytes.
_LARGEST_SMALL = 2048
_SMALL_SEGMENT = 4096
_LARGE_SEGMENT = 40960
_OWN_SEGMENT = 20480
_SEGMENT_UNIT = 4096


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
        """Return a block of at least so many bytes."""
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
        """Take a block back, and join it with its free neighbours."""
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
