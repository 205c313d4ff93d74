"""`DevicesSchedule`: a schedule a device, and every job of the gradients with start and end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offcert.core.devices.problem import Job
from offcert.core.schedule import Schedule


@dataclass(frozen=True, slots=True)
class TimedJob:
    """A job with its times, in ticks."""

    job: Job
    start: int
    end: int


@dataclass(frozen=True)
class DevicesSchedule:
    """Times for a problem on several devices.

    Parameters
    ----------
    steps : iterable of Schedule
        Operations and transfers of activations, a schedule a device, all on one clock.
    jobs : iterable of TimedJob
        Kept in the order of their starts.
    """

    steps: tuple[Schedule, ...]
    jobs: tuple[TimedJob, ...]

    def __init__(self, steps: Iterable[Schedule], jobs: Iterable[TimedJob]) -> None:
        object.__setattr__(self, "steps", tuple(steps))
        object.__setattr__(
            self, "jobs", tuple(sorted(jobs, key=lambda each: (each.start, each.end)))
        )

    def __repr__(self) -> str:
        count = len(self.steps)
        return (
            f"<DevicesSchedule: {count} devices, {len(self.jobs)} jobs, makespan {self.makespan}>"
        )

    @property
    def makespan(self) -> int:
        """End of the last operation or job, in ticks."""
        ends = [step.makespan for step in self.steps] + [each.end for each in self.jobs]
        return max(ends)
