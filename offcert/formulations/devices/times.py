"""Heads and tails: when anything can begin at the earliest, and what must follow it at least."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from offcert.core.platform import Kind
from offcert.questions.devices.problem import DevicesProblem, Job, JobKind, Place


@dataclass(frozen=True)
class JobGroup:
    """Jobs of one kind and gradient, of all devices together."""

    # Kind and gradient of the jobs.
    kind: JobKind
    gradient: int
    # Ticks before each of them, and after.
    head: int
    tail: int
    ticks: int  # Of all of them together.


class Times:
    """Heads and tails of one problem.

    Parameters
    ----------
    problem : DevicesProblem
        The problem.
    alone : int
        Ticks that no schedule of one device alone goes below; at least its operations take.

    Attributes
    ----------
    ends : list of int
        When each operation can have ended at the earliest.
    rest : list of int
        For each operation, ticks from its start to the end of the step at least.
    """

    def __init__(self, problem: DevicesProblem, alone: int) -> None:
        self.problem = problem
        durations = problem.step.trace.durations
        self.ends = list(accumulate(durations))
        self.alone = max(alone, self.ends[-1])
        self.ends[-1] = self.alone
        self.rest = list(accumulate(reversed(durations)))[::-1]
        self._host = problem.accumulation.place is Place.HOST
        if self._host and problem.devices > 1:
            self._extend_rest()

    def _ticks(self, kind: JobKind, gradient: int) -> int:
        return self.problem.ticks(Job(kind, gradient, 0))

    def _extend_rest(self) -> None:
        for index, gradient in enumerate(self.problem.gradients):
            before = sum(self.problem.step.trace.durations[: gradient.ready + 1])
            used = sum(self.problem.step.trace.durations[: gradient.last_use + 1])
            follows = self._ticks(JobKind.SEND, index) + self._tail(JobKind.SEND, index)
            done = 0
            for operation, duration in enumerate(self.problem.step.trace.durations):
                if operation <= gradient.ready:
                    self.rest[operation] = max(self.rest[operation], before - done + follows)
                if operation <= gradient.last_use:
                    self.rest[operation] = max(
                        self.rest[operation], used - done + self._ticks(JobKind.RETURN, index)
                    )
                done += duration

    def works(self) -> list[JobGroup]:
        """Return all jobs, those of a kind and gradient together.

        Where the first device adds up, heads count from the moment all devices have ended.
        """
        kinds = {(job.kind, job.gradient) for job in self.problem.jobs}
        counts = dict.fromkeys(kinds, 0)
        for job in self.problem.jobs:
            counts[job.kind, job.gradient] += 1
        return [
            JobGroup(
                kind,
                gradient,
                self._head(kind, gradient),
                self._tail(kind, gradient),
                counts[kind, gradient] * self._ticks(kind, gradient),
            )
            for kind, gradient in sorted(kinds)
        ]

    def _head(self, kind: JobKind, index: int) -> int:
        gradient, count = self.problem.gradients[index], self.problem.devices
        send, add = self._ticks(JobKind.SEND, index), self._ticks(JobKind.ADD, index)
        if self._host:
            ready = self.ends[gradient.ready]
            if kind is JobKind.SEND:
                return ready
            if kind is JobKind.ADD:
                return ready + send
            added = ready + max(count * send + add, send + count * add)
            return max(self.ends[gradient.last_use], added)
        forward = self._ticks(JobKind.FORWARD, index)
        if kind in (JobKind.SEND, JobKind.ADD):
            return 0
        if kind is JobKind.FORWARD:
            return send
        others = count - 1
        added = max(
            others * send + forward + add,
            send + others * forward + add,
            send + forward + others * add,
            count * add,
        )
        return added + (self._ticks(JobKind.COLLECT, index) if kind is JobKind.RETURN else 0)

    def _tail(self, kind: JobKind, index: int) -> int:
        count = self.problem.devices
        back, add = self._ticks(JobKind.RETURN, index), self._ticks(JobKind.ADD, index)
        if kind is JobKind.RETURN:
            return 0
        if self._host:
            return count * back + (add if kind is JobKind.SEND else 0)
        tail = (count - 1) * back
        for later, ticks in (
            (JobKind.COLLECT, self._ticks(JobKind.COLLECT, index)),
            (JobKind.ADD, add),
            (JobKind.FORWARD, self._ticks(JobKind.FORWARD, index)),
        ):
            if kind is later:
                return tail
            tail += ticks
        return tail

    def activations(self, kinds: frozenset[Kind]) -> tuple[int, int]:
        """Return the least head and tail of transfers of activations in some directions."""
        trace, platform = self.problem.step.trace, self.problem.step.platform
        heads, tails = [], []
        for gap, size in zip(trace.gaps, trace.gap_sizes, strict=True):
            writer = trace.tensors[gap.tensor].uses[0]
            written = self.ends[writer] if writer >= 0 else 0
            out = platform.transfer_time(size, Kind.OFFLOAD)
            back = platform.transfer_time(size, Kind.PREFETCH)
            if Kind.OFFLOAD in kinds:
                heads.append(written)
                tails.append(back + self.rest[gap.after])
            if Kind.PREFETCH in kinds:
                opened = self.ends[gap.before] if gap.before >= 0 else 0
                heads.append(max(opened, written + out))
                tails.append(self.rest[gap.after])
        return min(heads, default=0), min(tails, default=0)

    def after(self, operation: int) -> tuple[int, int, int]:
        """Return head, tail and ticks of what must come back to one device after an operation."""
        step = self.problem.step
        missing = step.trace.demand[operation] - step.platform.memory
        tails = [self.rest[gap.after] for gap in step.trace.gaps if gap.spans(operation)]
        # Whole tensors come back, so at least as many bytes.
        ticks = step.platform.transfer_time(max(missing, 0), Kind.PREFETCH)
        return self.ends[operation], min(tails, default=0), ticks
