"""`FluidSchedule`: operations at whole ticks, transfers in pieces with rational times and amounts.

What a schedule with interruptible or fractional transfers is (Problem 2 and §4 of the offloading
paper; on traces whose tensors may have several gaps).

- Operations start and end at integer ticks, so the makespan is an integer: a tick is the resolution
  of the problem. Pieces of transfers start and end at any rational time in between.
- A piece uses its link alone and moves its bytes evenly: at most the bandwidth allows.
- Let ``c(t)`` be the bytes of a tensor that have been copied to the host by time t, in this gap or
  before: copies stay valid. Let ``P`` be the bytes that are evicted in a gap: those that its
  prefetches bring back. Of them ``p(t)`` have come back by t. Once the operation that opens the gap
  has ended, ``min(c(t), P) - p(t)`` bytes are off the device: what has been transferred while that
  operation runs is released when it ends. A byte returns only after it has left, so ``p ≤ c``.
- Interruptible: ``P`` is 0 or the whole tensor, and a tensor of which anything is copied is copied
  whole. Transfers may pause; memory is released and taken byte by byte. Fractional: any ``P``.

Each schedule with atomic transfers is one of these: one piece a transfer, spread evenly over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.platform import Kind


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a transfer that uses the link without a pause.

    Attributes
    ----------
    kind : Kind
        Direction.
    gap : int
        The gap it serves (index into ``trace.gaps``); an offload names its tensor's first evicted
        gap.
    start, end : Fraction
        Ticks, ``start < end``.
    size : Fraction
        Bytes, more than 0, moved evenly from `start` to `end`.
    """

    kind: Kind
    gap: int
    start: Fraction
    end: Fraction
    size: Fraction


@dataclass(frozen=True)
class FluidSchedule:
    """Times for a trace whose transfers may pause or move tensors in part.

    Parameters
    ----------
    starts, ends : iterable of int
        Of each operation, in ticks.
    pieces : iterable of Piece
        Kept in the order of their starts.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def __init__(self, starts: Iterable[int], ends: Iterable[int], pieces: Iterable[Piece]) -> None:
        object.__setattr__(self, "starts", tuple(starts))
        object.__setattr__(self, "ends", tuple(ends))
        ordered = sorted(pieces, key=lambda item: (item.start, item.end, item.kind, item.gap))
        object.__setattr__(self, "pieces", tuple(ordered))

    def __repr__(self) -> str:
        end = f", makespan {self.makespan}" if self.ends else ""
        pieces = f"transfers in {len(self.pieces)} pieces"
        return f"<FluidSchedule: {len(self.starts)} operations, {pieces}{end}>"

    @property
    def makespan(self) -> int:
        """End of the last operation, in ticks."""
        return self.ends[-1]

    @property
    def evicted(self) -> tuple[int, ...]:
        """Numbers of the gaps in which something is off the device, increasing."""
        return tuple(sorted({p.gap for p in self.pieces if p.kind is Kind.PREFETCH}))

    @property
    def offloaded_size(self) -> Fraction:
        """Bytes that are copied to the host."""
        sizes = (piece.size for piece in self.pieces if piece.kind is Kind.OFFLOAD)
        return sum(sizes, Fraction(0))
