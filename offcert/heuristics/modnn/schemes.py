"""Offloading schemes: contiguous segments to vacate, and which of them costs least delay.

Chen et al., TPDS 2019, §5.2.1. A scheme begins at any segment and goes on to higher addresses until
it is large enough. What may not leave ends it. Of all schemes the one that delays the next task
least is taken. The paper does not say which of several that delay it equally, most often not at
all: here the one whose blocks are needed again latest, then the one of fewest bytes to be
transferred, then that of the lowest address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offcert.heuristics.modnn.pool import Pool, Segment


@dataclass(frozen=True, slots=True)
class Scheme:
    """Segments to vacate.

    Attributes
    ----------
    first : Segment
        Where it begins.
    blocks : tuple of int
        What has to leave, by increasing address.
    ready : int
        When all of it has left.
    """

    first: Segment
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
    """Return the scheme that delays what comes next least.

    Parameters
    ----------
    pool : Pool
        In which no free segment is large enough.
    size : int
        Bytes to vacate.
    leaving : callable
        Given a block and the time until which the link is busy, when the block has left and until
        when the link is busy then; None if it may not leave.
    link : int
        Until when the link is busy.
    now : int
        When the room is needed: what is vacated before delays nothing.
    rank : callable
        Of the blocks of a scheme: what is less is taken where delays are equal.

    Returns
    -------
    Scheme or None
        None if there is no scheme: the pool is fragmented, or too much may not leave.
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


def _scheme_from(first: Segment, size: int, leaving: Leaving, link: int) -> Scheme | None:
    blocks = []
    ready = total = 0
    segment: Segment | None = first
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
