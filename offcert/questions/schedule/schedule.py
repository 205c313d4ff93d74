"""`Schedule`, whose transfers are whole, and `FluidSchedule`, whose transfers come in pieces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.plan import Move, Plan


@dataclass(frozen=True, slots=True)
class TransferPiece:
    """A part of a transfer that uses the link without a pause."""

    kind: Kind
    # The gap it serves (index into ``trace.gaps``); an offload names its tensor's first evicted
    # gap.
    gap: int
    # Ticks, ``start < end``.
    start: Fraction
    end: Fraction
    size: Fraction  # Bytes, more than 0, moved evenly from `start` to `end`.


@dataclass(frozen=True)
class FluidSchedule:
    """Times for a trace whose transfers may pause or move tensors in part."""

    # Of each operation, in ticks.
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    pieces: tuple[TransferPiece, ...]  # Kept in the order of their starts.

    def __init__(
        self, starts: Iterable[int], ends: Iterable[int], pieces: Iterable[TransferPiece]
    ) -> None:
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


@dataclass(frozen=True, slots=True)
class Transfer:
    """One transfer over the link.

    Attributes
    ----------
    kind : Kind
        Direction.
    gap : int
        The gap it serves (index into ``trace.gaps``); an offload names its tensor's first evicted
        gap.
    start, end : int
        Ticks. An offloaded tensor's memory is released at the later of `end` and the end of the
        operation that opens the gap; a prefetched one's is taken at `start`.
    """

    kind: Kind
    gap: int
    start: int
    end: int


@dataclass(frozen=True)
class Schedule:
    """Times for a trace: what the simulator and the solvers return and the checker examines.

    Parameters
    ----------
    starts : iterable of int
        Start of each operation, in ticks.
    ends : iterable of int
        End of each operation.
    transfers : iterable of Transfer
        In the order of their starts.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    transfers: tuple[Transfer, ...]

    def __init__(
        self, starts: Iterable[int], ends: Iterable[int], transfers: Iterable[Transfer]
    ) -> None:
        object.__setattr__(self, "starts", tuple(starts))
        object.__setattr__(self, "ends", tuple(ends))
        ordered = sorted(transfers, key=lambda item: (item.start, item.end))
        object.__setattr__(self, "transfers", tuple(ordered))

    def __repr__(self) -> str:
        end = f", makespan {self.makespan}" if self.ends else ""
        return f"<Schedule: {len(self.starts)} operations, {len(self.transfers)} transfers{end}>"

    @property
    def makespan(self) -> int:
        """End of the last operation, in ticks."""
        return self.ends[-1]

    @property
    def evicted(self) -> tuple[int, ...]:
        """Numbers of the evicted gaps, increasing."""
        return tuple(sorted(t.gap for t in self.transfers if t.kind is Kind.PREFETCH))

    def first_operation_after_claim(self, transfer: Transfer) -> int:
        """Return the first operation that finds a prefetched tensor's memory taken when it starts.

        A prefetch that starts at the very time of operations of no duration takes its memory after
        them: it ends later than they do, so none of them can need it.
        """
        # Twice the start, plus one unless the operation has no duration: past twice the prefetch's.
        operation = bisect_right(self._starts_so_far, 2 * transfer.start)
        return min(operation, len(self.starts) - 1)

    @cached_property
    def _starts_so_far(self) -> list[int]:
        rows = zip(self.starts, self.ends, strict=True)
        return list(accumulate((2 * start + (end > start) for start, end in rows), max))

    def release(self, trace: Trace, transfer: Transfer) -> int:
        """Return the time at which an offload releases its tensor's memory."""
        opened_by = trace.gaps[transfer.gap].before
        return max(transfer.end, self.ends[opened_by] if opened_by >= 0 else 0)

    def plan(self, trace: Trace) -> Plan:
        """Return the schedule's decisions without its times.

        Re-simulating the plan gives a schedule that is at least as good.
        """
        moves = []
        for transfer in self.transfers:
            if transfer.kind is Kind.PREFETCH:
                before = self.first_operation_after_claim(transfer)
            else:
                released = self.release(trace, transfer)
                gap = trace.gaps[transfer.gap]
                # Operations start one after the other.
                before = bisect_left(self.starts, released, gap.before + 1, gap.after - 1)
            moves.append(Move(transfer.kind, transfer.gap, before))
        return Plan(moves)
