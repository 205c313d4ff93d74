"""`DevicesPlan`: the decisions of a schedule on several devices, without times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offcert.core.platform import Kind
from offcert.questions.devices.problem import DevicesProblem, Job, JobKind
from offcert.questions.schedule.plan import Move
from offcert.questions.schedule.schedule import Schedule


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


@dataclass(frozen=True, slots=True)
class DeviceMove:
    """A transfer of an activation: a `Move` of one device's plan."""

    device: int
    move: Move


LinkUse = DeviceMove | Job


def direction(use: LinkUse) -> Kind:
    """Return the direction in which something uses the link."""
    if isinstance(use, DeviceMove):
        return use.move.kind
    found = use.kind.direction
    assert found is not None
    return found


@dataclass(frozen=True)
class DevicesPlan:
    """In which order the link is used, and in which order gradients are added.

    Parameters
    ----------
    transfers : iterable of DeviceMove or Job
        All transfers, of activations, gradients and weights. On a duplex link the order matters
        within each direction only.
    additions : iterable of Job
        All additions, in the order in which they begin.
    """

    transfers: tuple[LinkUse, ...]
    additions: tuple[Job, ...]

    def __init__(self, transfers: Iterable[LinkUse], additions: Iterable[Job]) -> None:
        object.__setattr__(self, "transfers", tuple(transfers))
        object.__setattr__(self, "additions", tuple(additions))

    def moves(self, device: int) -> tuple[Move, ...]:
        """Return the transfers of one device's activations, in order."""
        return tuple(
            use.move
            for use in self.transfers
            if isinstance(use, DeviceMove) and use.device == device
        )

    @classmethod
    def of(cls, problem: DevicesProblem, schedule: DevicesSchedule) -> DevicesPlan:
        """Return the decisions of a schedule; simulated again, they take no longer than it."""
        uses: list[tuple[int, int, LinkUse]] = []
        for device, step in enumerate(schedule.steps):
            moves = step.plan(problem.step.trace).moves
            for transfer, move in zip(step.transfers, moves, strict=True):
                uses.append((transfer.start, transfer.end, DeviceMove(device, move)))
        additions = []
        for timed in schedule.jobs:
            if timed.job.kind is JobKind.ADD:
                additions.append(timed.job)
            else:
                uses.append((timed.start, timed.end, timed.job))
        uses.sort(key=lambda use: use[:2])
        return cls((use for _, _, use in uses), additions)
