"""Offloading schemes: contiguous segments to vacate, and which of them costs least delay.

Chen et al., TPDS 2019, §5.2.1. A scheme begins at any segment and goes on to higher addresses until
it is large enough. What may not leave ends it. Of all schemes the one that delays the next task
least is taken. The paper does not say which of several that delay it equally, most often not at
all: here the one whose blocks are needed again latest, then the one of fewest bytes to be
transferred, then that of the lowest address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice


@dataclass(slots=True, eq=False)
class PoolPart:
    """A contiguous part of the pool; its block is None if it is free, and has been since a time."""

    address: int
    size: int
    since: int = 0
    block: int | None = None


class MemoryPool:
    """A pool of `size` bytes, at first one free segment.

    Blocks are integers; an empty block takes no segment.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        # By increasing address.
        self.segments = [PoolPart(0, size, block=None if size else -1)]
        self.segment: dict[int, PoolPart] = {}

    def __contains__(self, block: int) -> bool:
        """Whether a block lies in the pool."""
        return block in self.segment

    def find(self, size: int) -> PoolPart | None:
        """Return a free segment of exactly this size, else the first one that is large enough."""
        fits = [each for each in self.segments if each.block is None and each.size >= size]
        return next((each for each in fits if each.size == size), fits[0] if fits else None)

    def take(self, segment: PoolPart, block: int, size: int) -> int:
        """Put a block at the beginning of a free segment; return from when on it may lie there."""
        if segment.size > size:
            self._divide(segment, size)
        segment.block = block
        self.segment[block] = segment
        return segment.since

    def take_at(self, address: int, block: int, size: int) -> None:
        """Put a block at an address inside a free segment; what is before it stays free."""
        segment = next(
            each
            for each in self.segments
            if each.block is None and each.address <= address < each.address + each.size
        )
        if segment.address < address:
            segment = self._divide(segment, address - segment.address)
        self.take(segment, block, size)

    def _divide(self, segment: PoolPart, size: int) -> PoolPart:
        """Leave so many bytes to a free segment; return a new one with the rest."""
        rest = PoolPart(segment.address + size, segment.size - size, segment.since)
        segment.size = size
        self.segments.insert(self.segments.index(segment) + 1, rest)
        return rest

    def release(self, block: int, since: int) -> None:
        """Take a block out of the pool; its place is free from a time on."""
        segment = self.segment.pop(block)
        segment.block, segment.since = None, since
        place = self.segments.index(segment)
        for first in (place, place - 1):
            pair = self.segments[max(first, 0) : first + 2]
            if len(pair) == 2 and pair[0].block is None and pair[1].block is None:
                lower, upper = pair
                lower.size += upper.size
                lower.since = max(lower.since, upper.since)
                del self.segments[first + 1]


@dataclass(frozen=True, slots=True)
class Scheme:
    """Segments to vacate: the first one, the blocks that leave, and when all of it has left."""

    first: PoolPart
    blocks: tuple[int, ...]
    ready: int


# When a block, which is to leave after those that the link carries until a time, has left: a pair
# of that time and of the time until which the link is then busy. None if it may not leave.
Leaving = Callable[[int, int], "tuple[int, int] | None"]


def best_scheme(
    pool: MemoryPool,
    size: int,
    leaving: Leaving,
    link: int,
    now: int,
    rank: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> Scheme | None:
    """Return the scheme that delays what comes next least, or None if there is none.

    So many bytes are to be vacated in a pool in which no free segment is large enough, and what is
    vacated before `now` delays nothing. Given a block and the time until which the link is busy,
    `leaving` says when the block has left and until when the link is busy then, or None if it may
    not leave. Of equal delays the scheme is taken whose blocks have the least `rank`.
    """
    best: Scheme | None = None
    least: tuple[int, ...] | None = None
    for first in range(len(pool.segments)):
        found = _scheme_from(islice(pool.segments, first, None), size, leaving, link)
        if found is None:
            continue
        cost = (max(0, found.ready - now), *rank(found.blocks))
        if least is None or cost < least:
            best, least = found, cost
    return best


def _scheme_from(
    segments: Iterable[PoolPart], size: int, leaving: Leaving, link: int
) -> Scheme | None:
    """Return the scheme that begins with the first of some segments, None if there is none."""
    first: PoolPart | None = None
    blocks = []
    ready = total = 0
    for segment in segments:
        first = first or segment
        if segment.block is None:
            ready = max(ready, segment.since)
        else:
            times = leaving(segment.block, link)
            if times is None:
                return None
            ready, link = max(ready, times[0]), times[1]
            blocks.append(segment.block)
        total += segment.size
        if total >= size:
            return Scheme(first, tuple(blocks), ready)
    return None
