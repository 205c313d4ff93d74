"""Marks in time: on the host's clock, or in the stream of a device's operators."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

from offcert.runtime.device.interface import Device, Event


class Stopwatch:
    """Says how long it was from one mark to the next.

    Parameters
    ----------
    device : Device or None
        In whose stream of operators marks are events; None: the host's clock, for operators that
        have ended when they return.
    """

    def __init__(self, device: Device | None) -> None:
        self.device = device

    def mark(self) -> int | Event:
        """Mark now, or the point that the stream has been given so far."""
        return time.perf_counter_ns() if self.device is None else self.device.compute.record()

    def between(self, marks: Sequence[int | Event]) -> list[int]:
        """Return the nanoseconds from each mark to the next; on a device, wait for the last one."""
        if self.device is not None:
            self.device.synchronise()
        return [self.since(begun, ended) for begun, ended in pairwise(marks)]

    def since(self, begun: int | Event, ended: int | Event) -> int:
        """Return the nanoseconds between two marks, which have been reached."""
        if isinstance(begun, int) or isinstance(ended, int):
            assert isinstance(begun, int)
            assert isinstance(ended, int)
            return ended - begun
        assert self.device is not None
        return self.device.nanoseconds(begun, ended)
