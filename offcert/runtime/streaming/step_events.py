"""When a timetable's work is done if everything takes as long as the problem says; exact integers.

The streams do their work in order, each piece as soon as its stream is free and the events that it
waits for have come. That is a recurrence over three clocks. What comes out is a schedule of the
problem, which the checker accepts; it cannot be shorter than what is proved about all schedules.
Needs no torch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.slowing import Lasting, settled
from offcert.runtime.device.interface import Device, DeviceEvent
from offcert.runtime.plan.timetable import Act, Timetable

Mark = int | DeviceEvent


class Stopwatch:
    """Says how long it was from one mark to the next.

    Marks are events in a device's stream of operators; without a device they are of the host's
    clock, for operators that have ended when they return.
    """

    def __init__(self, device: Device | None) -> None:
        self.device = device

    def mark(self) -> Mark:
        """Mark now, or the point that the stream has been given so far."""
        return time.perf_counter_ns() if self.device is None else self.device.compute.record()

    def wait(self) -> None:
        """Wait until all marks have been reached."""
        if self.device is not None:
            self.device.synchronise()

    def between(self, marks: Sequence[Mark]) -> list[int]:
        """Return the nanoseconds from each mark to the next; on a device, wait for the last one."""
        self.wait()
        return [self.since(begun, ended) for begun, ended in pairwise(marks)]

    def since(self, begun: Mark, ended: Mark) -> int:
        """Return the nanoseconds between two marks, which have been reached."""
        if isinstance(begun, int) or isinstance(ended, int):
            assert isinstance(begun, int)
            assert isinstance(ended, int)
            return ended - begun
        assert self.device is not None
        return self.device.nanoseconds(begun, ended)


class StepEvents:
    """Marks between the operations and around the transfers of one step."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self._begins: list[Mark] = []
        self._ends: list[Mark] = []
        self._transfers: list[tuple[Kind, int, Mark, Mark]] = []

    def began(self, event: Mark) -> None:
        """Take the point at which ``compute`` has waited for all that an operation needs."""
        self._begins.append(event)

    def ended(self, event: Mark) -> None:
        """Take the point at which it has done all of an operation; before the first, the start."""
        self._ends.append(event)

    def transferred(self, kind: Kind, gap: int, begin: Mark, end: Mark) -> None:
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
        since, start = self.watch.since, self._ends[0]
        self.watch.wait()
        begins = [since(start, event) for event in self._begins]
        ends = [since(start, event) for event in self._ends[1:]]
        transfers = [
            Transfer(kind, gap, since(start, begin), since(start, end))
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
