"""The interface of a device for the engine: streams, events, memory, and an arena of the host.

Two devices have it: CUDA's (`offcert.runtime.device.cuda`), and a simulated one on the CPU
(`offcert.runtime.simulated`), on which the same engine is tested, races included.

A device has three streams. Operators run in ``compute``, in the order in which the program calls
them; copies to the host run in ``out`` and copies from it in ``back``. Nothing orders the work of
two streams but events: what a stream is given after ``stream.wait(event)`` begins once all has
ended that the event's stream had been given when the event was recorded. Every call only hands
work over, and returns at once, but `Device.synchronise`, `DeviceEvent.wait_here`, and copies of
memory that is not registered.

Memory of the device is given out and taken back in the order of ``compute``: bytes that a tensor
has given up may be written by whatever ``compute`` runs next. So another stream that reads or
writes a tensor must begin after `Device.allocate`, and ``compute`` must wait for it before the
tensor is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from offcert.core.errors import OffcertError
from offcert.core.platform import Kind


class GraphCaptureError(OffcertError, RuntimeError):
    """Tensors were to be moved while a CUDA graph is captured, whose replays follow no plan."""


class DeviceEvent(Protocol):
    """A point in the work of a stream."""

    @property
    def reached(self) -> bool:
        """Whether all that came before it is known to have ended."""

    def wait_here(self) -> None:
        """Let the calling thread wait for it; raise what went wrong meanwhile."""


class Stream(Protocol):
    """Work that is done in the order in which it was given."""

    def record(self) -> DeviceEvent:
        """Return an event after all that the stream has been given so far."""

    def wait(self, event: DeviceEvent) -> None:
        """Let work that is given from now on begin only after an event."""


@dataclass(frozen=True, slots=True)
class Pinning:
    """How far memory of the host has been registered, and the seconds that it took so far.

    `threads` have registered it; 0 if whoever made the arena did. Once it has `ended`, no more will
    be registered; `refused` says why, if the device or the host has refused the rest.
    """

    size: int
    registered: int
    seconds: float
    threads: int = 0
    ended: bool = True
    refused: str = ""


class Arena(Protocol):
    """Memory of the host that the device's streams copy to and from, of exactly `size` bytes."""

    size: int

    @property
    def registered(self) -> bool:
        """Whether streams copy by themselves."""

    @property
    def where(self) -> str:
        """Where its memory is."""

    def view(self, offset: int, size: int) -> torch.Tensor:
        """Return bytes of it as a tensor over the same memory."""

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield bytes of it as addresses and sizes, each of which can be copied by one call."""

    def pending(self, offset: int) -> AbstractContextManager[Any] | None:
        """Return a context in which a piece is copied, and waited for, before it is registered.

        None if streams copy what begins at this address by themselves, or nothing of the arena ever
        is registered.
        """

    @property
    def pinning(self) -> Pinning | None:
        """How far it has been registered; None if it never is."""

    def finish(self) -> None:
        """Wait until all of it is registered that ever will be."""

    def close(self) -> None:
        """Give the memory back; no stream may use it any more."""


@dataclass(frozen=True, slots=True)
class CopiedStorage:
    """One of the storages that a transfer copies together.

    `data` are all its bytes on the device, as a tensor of type ``uint8`` over it; on the host they
    begin at an offset in an arena.
    """

    data: torch.Tensor
    arena: Arena
    offset: int


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Bytes of a device's memory: that tensors take now, and that its allocator has taken for them.

    Peaks are the most since `Device.reset_peaks`. Blocks are larger than what was `requested`; 0 if
    that is not known.
    """

    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    requested: int = 0
    peak_requested: int = 0

    @property
    def asked(self) -> tuple[int, int]:
        """The bytes that tensors take now and took at most, without rounding if that is known."""
        if self.peak_requested:
            return self.requested, self.peak_requested
        return self.allocated, self.peak_allocated


class Clerk(Protocol):
    """Copies from one place of the host to another, in the order in which it is told, meanwhile.

    It may take its time: what files take does not keep whoever hands work over.
    """

    def copy(
        self,
        source: tuple[Arena, int],
        target: tuple[Arena, int],
        size: int,
        after: Sequence[DeviceEvent] = (),
    ) -> DeviceEvent:
        """Let bytes be copied once all of some events have been reached; return when they are.

        The events are of streams, or of this clerk or another one. If one of them never is reached,
        nothing is copied, and this one never is either: who waits for it is told why.
        """

    def close(self) -> None:
        """Wait until it has done all it was told, or has failed to; it can be told no more."""


class Device(Protocol):
    """A device that runs operators in one stream and copies in two others.

    `tensors` is where the tensors of a model on this device are, as torch sees it.
    """

    name: str
    tensors: torch.device

    @property
    def compute(self) -> Stream:
        """The stream in which the calling thread's operators run."""

    @property
    def out(self) -> Stream:
        """The stream of copies to the host."""

    @property
    def back(self) -> Stream:
        """The stream of copies from it."""

    def allocate(self, size: int) -> torch.Tensor:
        """Return bytes of the device (``uint8``), given out in the order of ``compute``.

        If there are not so many, a `torch.OutOfMemoryError` is raised.
        """

    def arena(self, size: int, order: Sequence[tuple[int, int]] | None = None) -> Arena:
        """Return memory of the host, registered with the device.

        `order` has addresses and sizes in the order in which they are needed: registering may go on
        in the background then (`Arena.pending`). If there is not so much, an `OffcertError` is
        raised; if there is, but the device does not take it, a `RegistrationError`
        (`offcert.runtime.device.registration`).
        """

    def pageable(self, size: int) -> Arena:
        """Return memory of the host that is not registered, where the device refuses to do so."""

    def file(self, size: int, directory: str | None = None) -> Arena:
        """Return memory of the host in a file without a name, for what has no room otherwise."""

    def clerk(self, kind: Kind) -> Clerk:
        """Return who copies between memory of the host and files: one for each direction."""

    def require_movable(self) -> None:
        """Raise a `GraphCaptureError` if nothing can be moved now, before streams are told."""

    def copy_out(self, parts: Sequence[CopiedStorage]) -> None:
        """Let ``out`` copy storages to the host, as one transfer.

        The caller keeps the tensors alive until ``compute`` has waited for the copy.
        """

    def copy_back(self, parts: Sequence[CopiedStorage]) -> None:
        """Let ``back`` copy storages from the host, as one transfer; likewise."""

    def hold(self, duration: int) -> None:
        """Let ``compute`` do nothing for some nanoseconds, so that the host gets ahead of it."""

    def ran(self, *durations: int) -> None:
        """Take note that the operators of some operations have all been given to ``compute``.

        Nanoseconds are those that each takes according to its problem. A simulated device takes its
        word for it; a real one knows better.
        """

    def nanoseconds(self, begin: DeviceEvent, end: DeviceEvent) -> int:
        """Return the time between two events that have been reached (`synchronise`)."""

    def synchronise(self) -> None:
        """Wait until all streams have done all they were given."""

    def memory(self) -> MemoryReading:
        """Return the bytes of the device's memory that are taken, now and at their peak."""

    def release(self) -> None:
        """Give back what is reserved for tensors, and that none takes."""

    def reset_peaks(self) -> None:
        """Begin anew to look for the most bytes."""
