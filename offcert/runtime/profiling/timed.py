"""The times of a step, as they were measured."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.trace import Trace
from offcert.runtime.device.interface import MemoryReading


@dataclass(frozen=True)
class Timed:
    """The times of a step that was run on a device several times.

    Attributes
    ----------
    trace : Trace
        With its durations, and with its workspaces if the allocator tells.
    repetitions : int
        Of which durations are medians.
    resident : int or None
        The most bytes that were taken when an operation began, beside the parameters' gradients and
        what the trace counts; None if the allocator does not tell.
    memory : MemoryReading or None
        Of one step from its beginning to its end; likewise.
    spread : tuple of (int, int)
        The least and the most nanoseconds of each operation.
    launches : tuple of int
        The nanoseconds that the host took to hand over each operation, medians.
    step : int
        Nanoseconds of the step without anything between its operations, a median; the durations add
        up to it wherever the host is ahead.
    by_kernels : bool
        Whether durations are those of kernels (`offcert.runtime.profiling.kernels`).
    """

    trace: Trace
    repetitions: int
    resident: int | None
    memory: MemoryReading | None
    spread: tuple[tuple[int, int], ...] = ()
    launches: tuple[int, ...] = ()
    step: int = 0
    by_kernels: bool = False
