"""Offloading schemes: contiguous segments to vacate, and which of them costs least delay.

Chen et al., TPDS 2019, §5.2.1. A scheme begins at any segment and goes on to higher addresses until
it is large enough. What may not leave ends it. Of all schemes the one that delays the next task
least is taken. The paper does not say which of several that delay it equally, most often not at
all: here the one whose blocks are needed again latest, then the one of fewest bytes to be
transferred, then that of the lowest address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


class PoolPart:
    """A contiguous part of the pool, with its address and bytes, between its neighbours.

    Its block is None if it is free, and then it has been free since some time.
    """

    __slots__ = ("address", "after", "before", "block", "since", "size")

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self.block: int | None = None
        self.since = 0
        self.before: PoolPart | None = None
        self.after: PoolPart | None = None

    def __repr__(self) -> str:
        what = "free" if self.block is None else f"block {self.block}"
        return f"<Segment {self.address}+{self.size}: {what}>"


class Pool:
    """A pool of `size` bytes, at first one free segment.

    Blocks are integers; an empty block takes no segment.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.first = PoolPart(0, size)
        self.segment: dict[int, PoolPart] = {}
        if size == 0:
            self.first.block = -1

    def __iter__(self) -> Iterator[PoolPart]:
        """Yield the segments by increasing address."""
        segment: PoolPart | None = self.first
        while segment is not None:
            yield segment
            segment = segment.after

    def __contains__(self, block: int) -> bool:
        """Whether a block lies in the pool."""
        return block in self.segment

    @property
    def free(self) -> int:
        """Bytes that nothing takes, in one piece or not."""
        return sum(segment.size for segment in self if segment.block is None)

    def find(self, size: int) -> PoolPart | None:
        """Return a free segment of exactly this size, else the first one that is large enough."""
        fits: PoolPart | None = None
        segment: PoolPart | None = self.first
        while segment is not None:
            if segment.block is None and segment.size >= size:
                if segment.size == size:
                    return segment
                fits = fits or segment
            segment = segment.after
        return fits

    def take(self, segment: PoolPart, block: int, size: int) -> int:
        """Put a block at the beginning of a free segment; return from when on it may lie there."""
        if segment.size > size:
            rest = PoolPart(segment.address + size, segment.size - size)
            rest.since = segment.since
            rest.before, rest.after = segment, segment.after
            if segment.after is not None:
                segment.after.before = rest
            segment.after = rest
            segment.size = size
        segment.block = block
        self.segment[block] = segment
        return segment.since

    def take_at(self, address: int, block: int, size: int) -> None:
        """Put a block at an address inside a free segment; what is before it stays free."""
        segment = next(
            each
            for each in self
            if each.block is None and each.address <= address < each.address + each.size
        )
        if segment.address < address:
            rest = PoolPart(address, segment.address + segment.size - address)
            rest.since = segment.since
            rest.before, rest.after = segment, segment.after
            if segment.after is not None:
                segment.after.before = rest
            segment.after = rest
            segment.size = address - segment.address
            segment = rest
        self.take(segment, block, size)

    def release(self, block: int, since: int) -> None:
        """Take a block out of the pool; its place is free from a time on."""
        segment = self.segment.pop(block)
        segment.block, segment.since = None, since
        for lower, upper in ((segment, segment.after), (segment.before, segment)):
            if lower is None or upper is None:
                continue
            if lower.block is None and upper.block is None:
                lower.size += upper.size
                lower.since = max(lower.since, upper.since)
                lower.after = upper.after
                if upper.after is not None:
                    upper.after.before = lower


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
    pool: Pool,
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
    for first in pool:
        found = _scheme_from(first, size, leaving, link)
        if found is None:
            continue
        cost = (max(0, found.ready - now), *rank(found.blocks))
        if least is None or cost < least:
            best, least = found, cost
    return best


def _scheme_from(first: PoolPart, size: int, leaving: Leaving, link: int) -> Scheme | None:
    blocks = []
    ready = total = 0
    segment: PoolPart | None = first
    while segment is not None and total < size:
        if segment.block is None:
            ready = max(ready, segment.since)
        else:
            times = leaving(segment.block, link)
            if times is None:
                return None
            ready, link = max(ready, times[0]), times[1]
            blocks.append(segment.block)
        total += segment.size
        segment = segment.after
    return Scheme(first, tuple(blocks), ready) if total >= size else None
