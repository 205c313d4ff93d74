"""The memory pool of the moDNN paper: a linked list of segments, exact fit first, then first fit.

Chen et al., TPDS 2019, §3.3. The pool is virtual: it says where everything lies in a schedule that
is being made. A segment that is free may become so only later, when what lies there has left; a
time beside each free segment says when. (The paper says nothing of that; without it, the rest of a
segment that was vacated for something else could be given away too early.)
"""

from __future__ import annotations

from collections.abc import Iterator


class Segment:
    """A contiguous part of the pool, between its neighbours.

    Attributes
    ----------
    address, size : int
        Where it begins, and its bytes.
    block : int or None
        What lies there; None if it is free.
    since : int
        If it is free: from when on.
    before, after : Segment or None
        Its neighbours at lower and higher addresses.
    """

    __slots__ = ("address", "after", "before", "block", "since", "size")

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self.block: int | None = None
        self.since = 0
        self.before: Segment | None = None
        self.after: Segment | None = None

    def __repr__(self) -> str:
        what = "free" if self.block is None else f"block {self.block}"
        return f"<Segment {self.address}+{self.size}: {what}>"


class Pool:
    """A pool of `size` bytes, at first one free segment.

    Blocks are integers; an empty block takes no segment.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.first = Segment(0, size)
        self.segment: dict[int, Segment] = {}
        if size == 0:
            self.first.block = -1

    def __iter__(self) -> Iterator[Segment]:
        """Yield the segments by increasing address."""
        segment: Segment | None = self.first
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

    def find(self, size: int) -> Segment | None:
        """Return a free segment of exactly this size, else the first one that is large enough."""
        fits: Segment | None = None
        segment: Segment | None = self.first
        while segment is not None:
            if segment.block is None and segment.size >= size:
                if segment.size == size:
                    return segment
                fits = fits or segment
            segment = segment.after
        return fits

    def take(self, segment: Segment, block: int, size: int) -> int:
        """Put a block at the beginning of a free segment; return from when on it may lie there."""
        if segment.size > size:
            rest = Segment(segment.address + size, segment.size - size)
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
            rest = Segment(address, segment.address + segment.size - address)
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
