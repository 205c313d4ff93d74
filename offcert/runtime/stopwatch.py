"""Marks in time: on the host's clock, or in the stream of a device's operators."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import torch

from offcert.runtime.device.interface import Device, Event

Mark = int | torch.cuda.Event


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


def mark(device: torch.device) -> Mark:
    """Return now: nanoseconds, or an event in the current stream of a CUDA device."""
    if device.type != "cuda":
        return time.perf_counter_ns()
    event = torch.cuda.Event(enable_timing=True)
    # Of this device, which need not be the current one.
    event.record(torch.cuda.current_stream(device))
    return event


def nanoseconds(begun: Mark, ended: Mark) -> int:
    """Return the time between two marks; those of a stream must have been reached."""
    if isinstance(begun, int) and isinstance(ended, int):
        return ended - begun
    assert isinstance(begun, torch.cuda.Event)
    assert isinstance(ended, torch.cuda.Event)
    return round(begun.elapsed_time(ended) * 1e6)
