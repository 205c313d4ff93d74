"""Threads of the host that copy, as queues: they do so as late as events allow, like streams."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from offcert.core.errors import OffcertError
from offcert.runtime.device.interface import Arena, DeviceEvent
from offcert.runtime.simulated.arena import SimulatedArena
from offcert.runtime.simulated.streams import SimulatedEvent, SimulatedStream


class SimulatedDone(SimulatedEvent):
    """A flag: whether a clerk has made a copy, or which error came instead."""

    __slots__ = ("errors",)

    def __init__(self, stream: SimulatedStream, errors: list[Exception]) -> None:
        super().__init__(stream)
        self.errors = errors

    @property
    def reached(self) -> bool:
        """Whether it is known to have been made."""
        return super().reached and not self.errors

    def wait_here(self) -> None:
        """Carry it out; raise what went wrong."""
        super().wait_here()
        for error in self.errors:
            raise error


class SimulatedClerk:
    """Copies when somebody waits for it, or when the device's adversary says so. It takes no time.

    `note` is called with each stretch of the host that it uses: arena, address, bytes, and whether
    it writes.
    """

    def __init__(
        self,
        stream: SimulatedStream,
        note: Callable[[SimulatedArena, int, int, bool], None],
    ) -> None:
        self._stream = stream
        self._note = note
        self._closed = False

    def copy(
        self,
        source: tuple[Arena, int],
        target: tuple[Arena, int],
        size: int,
        after: Sequence[DeviceEvent] = (),
    ) -> SimulatedDone:
        """Let bytes be copied once events have been reached."""
        if self._closed:
            raise OffcertError("a copying thread is told to copy after it has been closed")
        for event in after:
            self._stream.wait(event)
        self._stream.work(0)
        errors: list[Exception] = []
        places = []
        for (arena, at), writes in ((source, False), (target, True)):
            assert isinstance(arena, SimulatedArena)
            self._note(arena, at, size, writes)
            places.append((arena, at))
        (there, begin), (here, to) = places

        def job() -> None:
            failed = [error for event in after for error in getattr(event, "errors", ())]
            if failed:
                errors.append(failed[0])
                return
            try:
                self.carry(there, begin, here, to, size)
            except Exception as error:
                errors.append(error)

        self._stream.enqueue(job)
        return SimulatedDone(self._stream, errors)

    def carry(
        self, source: SimulatedArena, begin: int, target: SimulatedArena, to: int, size: int
    ) -> None:
        """Copy bytes; tests let this fail."""
        if source.closed or target.closed:
            raise OffcertError(
                "a copying thread copies bytes of a host buffer that has been given back"
            )
        ctypes.memmove(target.address(to), source.address(begin), size)

    def close(self) -> None:
        """Carry out all it was told."""
        if not self._closed:
            self._closed = True
            self._stream.record().wait_here()
