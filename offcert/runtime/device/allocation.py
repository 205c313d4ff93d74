"""What a device's allocator took, beside what a plan said: peaks, limits, fragmentation.

A plan limits the bytes of tensors. The allocator takes more from the device than it gives out: it
rounds up, keeps what was given back in blocks of its own, and cannot always put blocks together.
So both are compared with the limit: what it has given out (allocated) says whether the plan is
kept, what it holds (reserved) whether others find room.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from offcert.runtime.device.interface import MemoryReading


@dataclass(frozen=True)
class Allocation:
    """Peaks of a step, planned and measured, in bytes of the whole device.

    Attributes
    ----------
    limit : int
        What the plan may take, with what its problem does not count.
    planned : int
        What it said it would take at most, likewise.
    reading : MemoryReading
        What the allocator says, with the peaks of the step.
    """

    limit: int
    planned: int
    reading: MemoryReading

    @property
    def allocated_over(self) -> int:
        """Bytes by which what was given out exceeded the limit."""
        return max(0, self.reading.peak_allocated - self.limit)

    @property
    def reserved_over(self) -> int:
        """Bytes by which what the allocator held exceeded the limit."""
        return max(0, self.reading.peak_reserved - self.limit)

    @property
    def peak_error(self) -> Fraction:
        """By how much more was given out than planned, as a part of what was planned."""
        return Fraction(self.reading.peak_allocated - self.planned, max(1, self.planned))

    @property
    def fragmentation(self) -> Fraction:
        """Which part of what the allocator held was never given out at the same time."""
        held = self.reading.peak_reserved
        return Fraction(max(0, held - self.reading.peak_allocated), max(1, held))

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value: bytes, and parts of a million."""
        return {
            "limit": self.limit,
            "planned_peak": self.planned,
            "allocated_peak": self.reading.peak_allocated,
            "reserved_peak": self.reading.peak_reserved,
            "allocated_over": self.allocated_over,
            "reserved_over": self.reserved_over,
            "peak_error_ppm": round(self.peak_error * 10**6),
            "fragmentation_ppm": round(self.fragmentation * 10**6),
        }
