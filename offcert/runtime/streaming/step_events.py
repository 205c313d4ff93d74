"""When a timetable's work is done if everything takes as long as the problem says; exact integers.

The streams do their work in order, each piece as soon as its stream is free and the events that it
waits for have come. That is a recurrence over three clocks. What comes out is a schedule of the
problem, which the checker accepts; it cannot be shorter than what is proved about all schedules.
Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Protocol

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.slowing import Lasting, settled
from offcert.runtime.device.interface import DeviceEvent
from offcert.runtime.plan.timetable import Act, Timetable


class EventClock(Protocol):
    """A clock that knows when an event was: a device's, or the host's (`HostClock`)."""

    def nanoseconds(self, begin: DeviceEvent, end: DeviceEvent) -> int:
        """Return the time between two events that have been reached."""

    def synchronise(self) -> None:
        """Wait until they all have."""


class StepEvents:
    """Events between the operations and around the transfers of one step."""

    def __init__(self, device: EventClock) -> None:
        self._device = device
        self._begins: list[DeviceEvent] = []
        self._ends: list[DeviceEvent] = []
        self._transfers: list[tuple[Kind, int, DeviceEvent, DeviceEvent]] = []

    def began(self, event: DeviceEvent) -> None:
        """Take the point at which ``compute`` has waited for all that an operation needs."""
        self._begins.append(event)

    def ended(self, event: DeviceEvent) -> None:
        """Take the point at which it has done all of an operation; before the first, the start."""
        self._ends.append(event)

    def transferred(self, kind: Kind, gap: int, begin: DeviceEvent, end: DeviceEvent) -> None:
        """Take the points before and after a transfer."""
        self._transfers.append((kind, gap, begin, end))

    @property
    def operations(self) -> int:
        """How many operations have ended."""
        return len(self._ends) - 1

    def schedule(self) -> Schedule:
        """Return all times in nanoseconds since the step began; waits for the device.

        A transfer that comes late serves no gap of the plan: its gap is -1.
        """
        device, start = self._device, self._ends[0]
        device.synchronise()
        begins = [device.nanoseconds(start, event) for event in self._begins]
        ends = [device.nanoseconds(start, event) for event in self._ends[1:]]
        transfers = [
            Transfer(kind, gap, device.nanoseconds(start, begin), device.nanoseconds(start, end))
            for kind, gap, begin, end in self._transfers
        ]
        return Schedule(begins[: len(ends)], ends, transfers)


def forecast(
    problem: Problem,
    timetable: Timetable,
    durations: Sequence[int] | None = None,
    launches: Sequence[int] | None = None,
) -> Schedule:
    """Return the schedule that the streams follow, by a timetable of a plan for a problem.

    `durations` are ticks of the operations, if other than the problem's; `launches` those that the
    host takes to hand over each operation, by default none: no operation ends before it has been
    handed over. Then it may last longer than its problem says.
    """
    taken = problem.trace.durations if durations is None else durations
    handed = [0] * len(taken) if launches is None else list(accumulate(launches))
    return settled(problem, partial(_streamed, problem, timetable, taken, handed))


def _streamed(
    problem: Problem,
    timetable: Timetable,
    taken: Sequence[int],
    handed: Sequence[int],
    lasts: Lasting,
) -> Schedule:
    """Return the schedule in which transfers last as long as is said, or else alone."""
    trace = problem.trace
    compute = out = back = 0
    copied: dict[int, int] = {}
    returned: dict[int, int] = {}
    starts, ends, transfers = [], [], []

    def lasting(kind: Kind, gap: int) -> int:
        alone = problem.platform.transfer_time(trace.gap_size(gap), kind)
        return lasts.get((kind, gap), alone)

    for index, actions in enumerate(timetable.actions):
        ended = compute
        for action in actions:
            gap, tensor = action.gap, trace.gaps[action.gap].tensor
            if action.act is Act.COPY_OUT:
                begin = max(out, ended, back if timetable.simplex else 0)
                out = begin + lasting(Kind.OFFLOAD, gap)
                copied[tensor] = out
                transfers.append(Transfer(Kind.OFFLOAD, gap, begin, out))
            elif action.act is Act.CLAIM:
                begin = max(back, compute, out if timetable.simplex else 0)
                back = begin + lasting(Kind.PREFETCH, gap)
                returned[gap] = back
                transfers.append(Transfer(Kind.PREFETCH, gap, begin, back))
            elif action.act is Act.RELEASE:
                compute = max(compute, copied[tensor])
            else:
                compute = max(compute, returned[gap])
        starts.append(compute)
        compute = max(compute + taken[index], handed[index])
        ends.append(compute)
    return Schedule(starts, ends, transfers)
