"""`DevicesPlan`: the decisions of a schedule on several devices, without times.

The checker examines a schedule event by event, in exact integers. Each device's operations,
transfers and memory are examined by the checker for one device. What they share is examined here:
the link, the order of what happens to a gradient, and who adds it up. No code is shared with a
simulator or a solver; even which jobs there must be is derived again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.questions.devices.problem import AdditionPlace, DevicesProblem, GradientJob, JobKind
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move
from offcert.questions.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class TimedJob:
    """A job with its times, in ticks."""

    job: GradientJob
    start: int
    end: int


@dataclass(frozen=True)
class DevicesSchedule:
    """Times for a problem on several devices."""

    # Operations and transfers of activations, a schedule a device, all on one clock.
    steps: tuple[Schedule, ...]
    jobs: tuple[TimedJob, ...]  # Kept in the order of their starts.

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


LinkUse = DeviceMove | GradientJob


def direction(use: LinkUse) -> Kind:
    """Return the direction in which something uses the link."""
    if isinstance(use, DeviceMove):
        return use.move.kind
    found = use.kind.direction
    assert found is not None
    return found


@dataclass(frozen=True)
class DevicesPlan:
    """In which order the link is used, and in which order gradients are added."""

    # All transfers, of activations, gradients and weights. On a duplex link the order matters
    # within each direction only.
    transfers: tuple[LinkUse, ...]
    additions: tuple[GradientJob, ...]  # All additions, in the order in which they begin.

    def __init__(self, transfers: Iterable[LinkUse], additions: Iterable[GradientJob]) -> None:
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


_OUT = (JobKind.SEND, JobKind.COLLECT)


def check_devices(problem: DevicesProblem, schedule: DevicesSchedule) -> list[str]:
    """Return every reason why a schedule is none of a problem; empty if it is valid."""
    return _Checker(problem, schedule).run()


class _Checker:
    def __init__(self, problem: DevicesProblem, schedule: DevicesSchedule) -> None:
        self.problem = problem
        self.schedule = schedule
        self.faults: list[str] = []
        self.times: dict[GradientJob, TimedJob] = {}

    def run(self) -> list[str]:
        count = len(self.schedule.steps)
        if count != self.problem.devices:
            return [f"the schedule has {count} devices instead of {self.problem.devices}"]
        for device, step in enumerate(self.schedule.steps):
            found = check(self.problem.step, step)
            self.faults += [f"device {device}: {fault}" for fault in found]
        if not self.faults and self._collect_jobs():
            self._check_durations()
            self._check_order()
            self._check_link()
            self._check_additions()
        return self.faults

    def _required(self) -> Iterator[GradientJob]:
        """Yield every job there must be."""
        count = self.problem.devices
        host = self.problem.accumulation.place is AdditionPlace.HOST
        # The first device sends nothing to itself.
        first = 0 if host else 1
        for gradient in range(len(self.problem.gradients) if count > 1 else 0):
            for device in range(count):
                yield GradientJob(JobKind.ADD, gradient, device)
            for device in range(first, count):
                yield GradientJob(JobKind.SEND, gradient, device)
                yield GradientJob(JobKind.RETURN, gradient, device)
                if not host:
                    yield GradientJob(JobKind.FORWARD, gradient, device)
            if not host:
                yield GradientJob(JobKind.COLLECT, gradient, 0)

    def _collect_jobs(self) -> bool:
        """Know every job's times; return whether all are there, once, with integer times."""
        for timed in self.schedule.jobs:
            if timed.job in self.times:
                self.faults.append(f"{timed.job} happens twice")
            if type(timed.start) is not int or type(timed.end) is not int:
                self.faults.append(f"{timed.job} has times that are no integers")
            self.times[timed.job] = timed
        required = set(self._required())
        self.faults += [f"{job} is missing" for job in sorted(required - set(self.times), key=str)]
        self.faults += [
            f"{job} has no place" for job in sorted(set(self.times) - required, key=str)
        ]
        return not self.faults

    def _check_durations(self) -> None:
        platform, adding = self.problem.step.platform, self.problem.accumulation.rate
        for job, timed in self.times.items():
            size = self.problem.gradients[job.gradient].size
            if job.kind is JobKind.ADD:
                rate = adding
            else:
                rate = platform.rate(Kind.OFFLOAD if job.kind in _OUT else Kind.PREFETCH)
            whole, rest = divmod(size * rate.denominator, rate.numerator)
            length = whole + (rest > 0)
            if timed.end - timed.start != length:
                self.faults.append(
                    f"{job} lasts {timed.end - timed.start} ticks instead of {length}"
                )

    def _check_order(self) -> None:
        """Whether every job starts after what it needs."""
        for job, timed in self.times.items():
            for what, ended in self._needs(job):
                if timed.start < ended:
                    self.faults.append(f"{job} starts at {timed.start}, before {what} at {ended}")

    def _needs(self, job: GradientJob) -> Iterator[tuple[str, int]]:
        """Yield the events that must come before a job, each in words with its tick."""
        gradient, device = self.problem.gradients[job.gradient], job.device
        if self.problem.accumulation.place is AdditionPlace.DEVICE:
            # Everything comes after the last operation of every device.
            yield "all devices have ended", max(step.ends[-1] for step in self.schedule.steps)
        if job.kind is JobKind.SEND:
            yield "the gradient is complete", self.schedule.steps[device].ends[gradient.ready]
        elif job.kind is JobKind.FORWARD:
            yield "it was sent", self._end(JobKind.SEND, job)
        elif job.kind is JobKind.ADD:
            if self.problem.accumulation.place is AdditionPlace.HOST:
                yield "it was sent", self._end(JobKind.SEND, job)
            elif device > 0:
                yield "it was forwarded", self._end(JobKind.FORWARD, job)
        else:
            for other in range(self.problem.devices):
                added = self.times[GradientJob(JobKind.ADD, job.gradient, other)].end
                yield f"the gradient of device {other} is added", added
            if job.kind is JobKind.RETURN:
                used = self.schedule.steps[device].ends[gradient.last_use]
                yield "the weights were last used", used
                if self.problem.accumulation.place is AdditionPlace.DEVICE:
                    collected = self.times[GradientJob(JobKind.COLLECT, job.gradient, 0)].end
                    yield "the weights are on the host", collected

    def _end(self, kind: JobKind, job: GradientJob) -> int:
        return self.times[GradientJob(kind, job.gradient, job.device)].end

    def _check_link(self) -> None:
        uses: dict[Kind, list[tuple[int, int, str]]] = {kind: [] for kind in Kind}
        for device, step in enumerate(self.schedule.steps):
            for transfer in step.transfers:
                label = f"the {transfer.kind} of gap {transfer.gap} of device {device}"
                uses[transfer.kind].append((transfer.start, transfer.end, label))
        for job, timed in self.times.items():
            if job.kind is not JobKind.ADD:
                kind = Kind.OFFLOAD if job.kind in _OUT else Kind.PREFETCH
                uses[kind].append((timed.start, timed.end, str(job)))
        out, back = uses[Kind.OFFLOAD], uses[Kind.PREFETCH]
        for queue in (out, back) if self.problem.step.platform.duplex else (out + back,):
            self._check_queue(queue, "uses the link")

    def _check_queue(self, queue: list[tuple[int, int, str]], what: str) -> None:
        for (_, end, first), (start, _, second) in pairwise(sorted(queue)):
            if start < end:
                self.faults.append(f"{second} starts at {start} while {first} {what} until {end}")

    def _check_additions(self) -> None:
        """Whether no more is added at a time than can be, and nothing twice to the same weights."""
        adds = [timed for job, timed in self.times.items() if job.kind is JobKind.ADD]
        for gradient in range(len(self.problem.gradients)):
            queue = [
                (each.start, each.end, str(each.job))
                for each in adds
                if each.job.gradient == gradient
            ]
            self._check_queue(queue, "changes the weights")
        # At equal times what ends comes first.
        events = sorted(
            [(each.start, 1) for each in adds] + [(each.end, -1) for each in adds],
        )
        running, cores = 0, self.problem.accumulation.cores
        for time, change in events:
            running += change
            if running > cores:
                self.faults.append(f"{running} additions run at {time}, more than {cores}")
                break
