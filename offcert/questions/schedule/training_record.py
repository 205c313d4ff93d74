"""`TrainingRecord`: a training step as planned, beside measurements of it.

Times are nanoseconds since the step began, sizes bytes. Needs no torch.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from offcert.core.platform import Kind
from offcert.core.units import Units
from offcert.questions.schedule.schedule import Schedule, Transfer


@dataclass(frozen=True)
class Course:
    """A step as it was planned, or as it ran."""

    # When operations and transfers ran. A transfer whose gap is -1 was in no plan.
    schedule: Schedule
    # Live bytes when each operation began (after what left and came back before it) and ended, and
    # the most while it ran; empty if they were not counted.
    at_begin: tuple[int, ...] = ()
    at_end: tuple[int, ...] = ()
    peaks: tuple[int, ...] = ()

    def __len__(self) -> int:
        """How many operations have ended."""
        return len(self.schedule.ends)

    @cached_property
    def stalls(self) -> tuple[int, ...]:
        """How long each operation was waited for, after the one before it had ended."""
        befores = (0, *self.schedule.ends)
        return tuple(
            start - before for start, before in zip(self.schedule.starts, befores, strict=False)
        )

    @property
    def peak(self) -> int | None:
        """The most live bytes; None if they were not counted."""
        return max(self.peaks, default=None)

    def live(self) -> Iterator[tuple[int, int]]:
        """Yield the live bytes as they change: a time, and the bytes from then on.

        While an operation runs, they are the most that it needs; between two operations, what the
        one before has left.
        """
        counted = zip(
            self.schedule.starts, self.schedule.ends, self.peaks, self.at_end, strict=False
        )
        for start, end, peak, left in counted:
            yield start, peak
            yield end, left

    def moved(self, kind: Kind, size_of: Mapping[int, int]) -> tuple[int, ...]:
        """Return the bytes that begin to move one way between the ends of two operations.

        The bytes of a gap that is in no plan, of which there are none in `size_of`, do not count.
        """
        found = [0] * len(self)
        index = 0
        for transfer in self.schedule.transfers:
            while index < len(self) and self.schedule.ends[index] <= transfer.start:
                index += 1
            if transfer.kind is kind and index < len(self):
                found[index] += size_of.get(transfer.gap, 0)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Moved:
    """The tensor and bytes that a gap's transfers move."""

    tensor: str
    size: int


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """One of the steps that were taken."""

    # Nanoseconds from its begin to the end of its last operation; None if that never came.
    time: int | None
    late_bytes: int = 0  # Bytes that came back only when they were asked for.
    unfreed_bytes: int = 0  # Bytes that the plan wanted to free and could not.
    outside_bytes: int = 0  # Copied to the host that the arena had no room for.
    unforeseen_bytes: int = 0  # Bytes that the forward pass saved, but not when it was captured.
    # Losses, gradients, parameters, buffers and random states that were not those of plain
    # training.
    differences: int = 0
    # The first thing in which the step was not the one that was planned.
    deviation: str | None = None


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The memory of the host that a plan needs."""

    pool: int  # Bytes for all that has left, as they are laid out.
    load: int  # Most bytes that are needed at a time: no layout is smaller.
    limit: int | None = None  # Bytes that were allowed.
    spilled: int = 0  # Bytes of the pool that are in a file.
    staging: int = 0  # Bytes besides, through which streams copy to and from the file.

    @property
    def held(self) -> int:
        """Bytes in the host's memory."""
        return self.pool - self.spilled + self.staging


@dataclass(frozen=True, slots=True)
class AllocatorPeaks:
    """A step by a device's allocator: bytes of the whole device.

    A plan limits the bytes of tensors. The allocator takes more from the device than it gives out:
    it rounds up, keeps what was given back in blocks of its own, and cannot always put blocks
    together. So both are compared with a limit: what it has given out says whether the plan is
    kept, what it holds whether others find room.
    """

    before: int  # Bytes of tensors when the step began, its batch included; 0 if nobody asked.
    # The most bytes of tensors, and the most that the allocator has taken for them.
    allocated: int
    reserved: int

    @property
    def fragmentation(self) -> Fraction:
        """The part of the bytes held by the allocator that was never given out at a time."""
        return Fraction(max(0, self.reserved - self.allocated), max(1, self.reserved))

    def peak_error(self, planned: int) -> Fraction:
        """Return by which part more was given out than planned; both of the whole device."""
        return Fraction(self.allocated - planned, max(1, planned))

    def beside(self, limit: int, planned: int) -> dict[str, int]:
        """Return it beside what a plan may take and says it takes, for JSON.

        Both are bytes of the whole device: with what the plan's problem does not count. Returned
        are bytes, and parts of a million.
        """
        return {
            "limit": limit,
            "planned_peak": planned,
            "allocated_peak": self.allocated,
            "reserved_peak": self.reserved,
            "allocated_over": max(0, self.allocated - limit),
            "reserved_over": max(0, self.reserved - limit),
            "peak_error_ppm": round(self.peak_error(planned) * 10**6),
            "fragmentation_ppm": round(self.fragmentation * 10**6),
        }


@dataclass(frozen=True)
class TrainingRecord:
    """A plan beside measurements of it."""

    name: str
    problem: str  # Its hash.
    device: str  # ``"cpu"``, ``"simulated"`` or ``"cuda"``.
    device_name: str  # For people.
    versions: Mapping[str, str]  # Of this program and of the libraries it ran with.
    duplex: bool  # Whether transfers in both directions run at the same time.
    limit: int  # Bytes that the plan was made for.
    unplanned_peak: int  # Bytes that the step needs without a plan.
    # Makespan of the schedule that was followed; None if it was a plan without times.
    certified: int | None
    operations: tuple[str, ...]
    moved: Mapping[int, Moved]  # Tensors and bytes that each gap in the transfers moves.
    # What follows from the plan as this runtime carries it out, if all takes as long as the problem
    # says.
    planned: Course
    # The step that is shown; it may have ended early. None if none was timed.
    measured: Course | None
    steps: tuple[StepNumbers, ...]
    shown: int | None  # Index of the one that is shown.
    host: HostMemory
    # Of the step that is shown (on CUDA, of the first one), if the device tells.
    memory: AllocatorPeaks | None = None
    sizes: Mapping[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", {gap: each.size for gap, each in self.moved.items()})

    @property
    def units(self) -> Units:
        """Nanoseconds and bytes."""
        return Units("ns", "B")

    @property
    def predicted_time(self) -> int:
        """Nanoseconds that the step takes as it is planned."""
        return self.planned.schedule.makespan

    @property
    def measured_time(self) -> int | None:
        """Nanoseconds that it took; None if it was not timed to its end."""
        return None if self.shown is None else self.steps[self.shown].time

    @property
    def predicted_peak(self) -> int:
        """Bytes that the plan needs at most."""
        return max(self.planned.peaks)

    @property
    def measured_peak(self) -> int | None:
        """The most bytes that were alive: counted, or else as the device's allocator says.

        The allocator counts gradients, too, which come into being during the backward pass.
        """
        counted = None if self.measured is None else self.measured.peak
        if counted is not None or self.memory is None:
            return counted
        return self.memory.allocated - self.memory.before

    def errors(self) -> dict[str, int | float | None]:
        """Return one number for each thing that may be other than planned; see `ERRORS`."""
        time, peak = self.measured_time, self.measured_peak
        return {
            "time": _beyond(time, self.predicted_time),
            "time_to_certified": _beyond(time, self.certified),
            "peak": _beyond(peak, self.predicted_peak),
            "late_bytes": sum(step.late_bytes for step in self.steps),
            "unfreed_bytes": sum(step.unfreed_bytes for step in self.steps),
            "outside_bytes": sum(step.outside_bytes for step in self.steps),
        }

    def pairs(self) -> Iterator[tuple[Transfer | None, Transfer | None]]:
        """Yield each transfer as it was planned and as it ran; None where it was only one."""
        waiting: dict[tuple[Kind, int], deque[Transfer]] = defaultdict(deque)
        for each in () if self.measured is None else self.measured.schedule.transfers:
            waiting[each.kind, each.gap].append(each)
        for planned in self.planned.schedule.transfers:
            ran = waiting[planned.kind, planned.gap]
            yield planned, ran.popleft() if ran else None
        for left in waiting.values():
            yield from ((None, each) for each in left)


# Meanings of the numbers in `TrainingRecord.errors`.
ERRORS = {
    "time": "step time as measured over that of the plan as it is run, less 1",
    "time_to_certified": "step time as measured over the makespan of the schedule, less 1",
    "peak": "most live bytes as measured over those of the plan, less 1",
    "late_bytes": "bytes that came back only when they were asked for, in all steps",
    "unfreed_bytes": "bytes that should have left, but were held by someone, in all steps",
    "outside_bytes": "bytes copied to the host outside of its buffer, in all steps",
}


def _beyond(found: int | None, expected: int | None) -> float | None:
    """Return by which part something is more than expected."""
    return None if found is None or not expected else (found - expected) / expected
