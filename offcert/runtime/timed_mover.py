"""`TimedMover`: moves tensors at once, and takes note of when."""

from __future__ import annotations

import time
from dataclasses import dataclass

from offcert.core.plan import Kind
from offcert.runtime.at_once import GapsOfTensors
from offcert.runtime.device.interface import Event
from offcert.runtime.mover import Step, SynchronousMover
from offcert.runtime.program import Program
from offcert.runtime.saved import Entry
from offcert.runtime.store import HostStore
from offcert.runtime.streaming.record import StepRecord


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time of the host, which has been reached once it exists."""

    time: int
    reached: bool = True

    def wait_here(self) -> None:
        """Return at once."""


class HostClock:
    """The host's own clock, for a `StepRecord`."""

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
_LATE = -1


class TimedMover(SynchronousMover):
    """Takes note of the times of operations and transfers.

    Parameters
    ----------
    program : Program
        What to follow.
    store : HostStore
        Where offloaded bytes go.
    record : StepRecord
        Takes note.
    """

    def __init__(self, program: Program, store: HostStore, record: StepRecord) -> None:
        super().__init__(program, store)
        self._record = record
        self._gaps = GapsOfTensors(program.trace)

    def acts(self, operation: int) -> bool:
        """Every operation has times."""
        return True

    def reach(self, step: Step, operation: int) -> None:
        """Move what the plan wants moved before an operation begins."""
        self._record.ended(HOST_CLOCK.now())
        super().reach(step, operation)
        self._record.began(HOST_CLOCK.now())

    def _leave(self, step: Step, tensor: int, operation: int) -> None:
        before, begin = self.offloaded_bytes, HOST_CLOCK.now()
        super()._leave(step, tensor, operation)
        if self.offloaded_bytes > before:
            self._transferred(Kind.OFFLOAD, self._gaps.at(tensor, operation), begin)

    def _return(self, step: Step, tensor: int, operation: int) -> None:
        before, begin = self.prefetched_bytes, HOST_CLOCK.now()
        super()._return(step, tensor, operation)
        if self.prefetched_bytes > before:
            self._transferred(Kind.PREFETCH, self._gaps.at(tensor, operation), begin)

    def fetch_late(self, step: Step, entry: Entry) -> None:
        """Bring back what autograd asks for before the plan does."""
        begin = HOST_CLOCK.now()
        super().fetch_late(step, entry)
        self._transferred(Kind.PREFETCH, _LATE, begin)

    def end(self, step: Step, *, complete: bool) -> None:
        """Take note of the end of the last operation."""
        if complete:
            self._record.ended(HOST_CLOCK.now())

    def _transferred(self, kind: Kind, gap: int, begin: Moment) -> None:
        self._record.transferred(kind, gap, begin, HOST_CLOCK.now())
