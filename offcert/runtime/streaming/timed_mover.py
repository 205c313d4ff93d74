"""`TimedMover`: moves tensors at once, and takes note of when."""

from __future__ import annotations

import time
from dataclasses import dataclass

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.runtime.device.interface import Event
from offcert.runtime.device.store import HostStore
from offcert.runtime.plan.predict import Prediction
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.streaming.step_events import StepEvents
from offcert.runtime.streaming.synchronous import MovedStep, SynchronousMover
from offcert.runtime.watch.entries import Entry


class GapsOfTensors:
    """Finds the gap of a tensor that an operation lies in.

    Parameters
    ----------
    trace : Trace
        The trace whose gaps they are.
    """

    def __init__(self, trace: Trace) -> None:
        self._rows: dict[int, list[tuple[int, int]]] = {}
        for number, gap in enumerate(trace.gaps):
            self._rows.setdefault(gap.tensor, []).append((gap.after, number))

    def at(self, tensor: int, operation: int) -> int:
        """Return the gap in which a tensor is absent that moves before an operation."""
        return next(number for after, number in self._rows[tensor] if operation <= after)


def forecast_at_once(problem: Problem, prediction: Prediction) -> Schedule:
    """Return the times of a plan whose transfers all happen between two operations.

    Before each operation, everything that is to leave is copied first, the first time that it
    leaves, and then what is to come back, one after the other. Nothing overlaps.

    Parameters
    ----------
    problem : Problem
        The operations, and the platform's rates.
    prediction : Prediction
        Of the plan: what leaves and comes back before each operation.
    """
    trace, platform, gaps = problem.trace, problem.platform, GapsOfTensors(problem.trace)
    now, copied = 0, set()
    starts, ends, transfers = [], [], []
    for index, duration in enumerate(trace.durations):
        leaving = [each for each in prediction.releases[index] if each not in copied]
        copied.update(leaving)
        moves = [(Kind.OFFLOAD, each) for each in leaving]
        moves += [(Kind.PREFETCH, each) for each in prediction.claims[index]]
        for kind, tensor in moves:
            begin, size = now, trace.tensors[tensor].size
            now += platform.transfer_time(size, kind)
            transfers.append(Transfer(kind, gaps.at(tensor, index), begin, now))
        starts.append(now)
        now += duration
        ends.append(now)
    return Schedule(starts, ends, transfers)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time of the host, which has been reached once it exists."""

    time: int
    reached: bool = True

    def wait_here(self) -> None:
        """Return at once."""


class HostClock:
    """The host's own clock, for a `StepEvents`."""

    def now(self) -> Moment:
        """Return this moment."""
        return Moment(time.perf_counter_ns())

    def nanoseconds(self, begin: Event, end: Event) -> int:
        """Return the time between two moments."""
        assert isinstance(begin, Moment)
        assert isinstance(end, Moment)
        return end.time - begin.time

    def synchronise(self) -> None:
        """Do nothing: whoever works at once has done it."""


HOST_CLOCK = HostClock()
# The place of copies that no operation waits for. By definition.
_LATE = -1


class TimedMover(SynchronousMover):
    """Takes note of the times of operations and transfers.

    Parameters
    ----------
    step_plan : StepPlan
        The plan to follow.
    store : HostStore
        Where offloaded bytes go.
    record : StepEvents
        Takes note.
    """

    def __init__(self, step_plan: StepPlan, store: HostStore, record: StepEvents) -> None:
        super().__init__(step_plan, store)
        self._record = record
        self._gaps = GapsOfTensors(step_plan.trace)

    def acts(self, operation: int) -> bool:
        """Every operation has times."""
        return True

    def reach(self, step: MovedStep, operation: int) -> None:
        """Move what the plan wants moved before an operation begins."""
        self._record.ended(HOST_CLOCK.now())
        super().reach(step, operation)
        self._record.began(HOST_CLOCK.now())

    def _leave(self, step: MovedStep, tensor: int, operation: int) -> None:
        before, begin = self.offloaded_bytes, HOST_CLOCK.now()
        super()._leave(step, tensor, operation)
        if self.offloaded_bytes > before:
            self._transferred(Kind.OFFLOAD, self._gaps.at(tensor, operation), begin)

    def _return(self, step: MovedStep, tensor: int, operation: int) -> None:
        before, begin = self.prefetched_bytes, HOST_CLOCK.now()
        super()._return(step, tensor, operation)
        if self.prefetched_bytes > before:
            self._transferred(Kind.PREFETCH, self._gaps.at(tensor, operation), begin)

    def fetch_late(self, step: MovedStep, entry: Entry) -> None:
        """Bring back what autograd asks for before the plan does."""
        begin = HOST_CLOCK.now()
        super().fetch_late(step, entry)
        self._transferred(Kind.PREFETCH, _LATE, begin)

    def end(self, step: MovedStep, *, complete: bool) -> None:
        """Take note of the end of the last operation."""
        if complete:
            self._record.ended(HOST_CLOCK.now())

    def _transferred(self, kind: Kind, gap: int, begin: Moment) -> None:
        self._record.transferred(kind, gap, begin, HOST_CLOCK.now())
