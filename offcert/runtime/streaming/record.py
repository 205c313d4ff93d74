"""`StepRecord`: when the operations and transfers of a step ran, by events of a device."""

from __future__ import annotations

from typing import Protocol

from offcert.core.plan import Kind
from offcert.core.schedule import Schedule, Transfer
from offcert.runtime.device.interface import Event


class Clock(Protocol):
    """Who knows when an event was: a device, or the host (`offcert.runtime.timed_mover`)."""

    def nanoseconds(self, begin: Event, end: Event) -> int:
        """Return the time between two events that have been reached."""

    def synchronise(self) -> None:
        """Wait until they all have."""


class StepRecord:
    """Events between the operations and around the transfers of one step.

    Parameters
    ----------
    device : Clock
        Whose events they are.
    """

    def __init__(self, device: Clock) -> None:
        self._device = device
        self._begins: list[Event] = []
        self._ends: list[Event] = []
        self._transfers: list[tuple[Kind, int, Event, Event]] = []

    def began(self, event: Event) -> None:
        """Take the point at which ``compute`` has waited for all that an operation needs."""
        self._begins.append(event)

    def ended(self, event: Event) -> None:
        """Take the point at which it has done all of an operation; before the first, the start."""
        self._ends.append(event)

    def transferred(self, kind: Kind, gap: int, begin: Event, end: Event) -> None:
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
