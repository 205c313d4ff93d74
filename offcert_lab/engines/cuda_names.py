"""The streams and events of ``torch.cuda``, of the simulated machine."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from offcert.runtime.simulated.streams import SimulatedEvent
from offcert_lab.engines.findings import place
from offcert_lab.engines.recorder import EngineRecorder, require_device

# The recorder of the audit that runs; one at a time in a process.
running: list[EngineRecorder] = []

# Nanoseconds in a millisecond. By definition.
_MILLISECOND = 10**6


def recorder() -> EngineRecorder:
    """Return the recorder of the audit that runs."""
    return running[-1]


def _device(device: Any) -> torch.device:
    if device is None or isinstance(device, int):
        device = torch.device("cuda", max(device or 0, 0))
    found = torch.device(device)
    require_device(recorder(), found)
    return torch.device("cuda", 0)


class Stream:
    """A stream of the simulated device, with the methods of ``torch.cuda.Stream``.

    Parameters
    ----------
    device : torch.device, str or int, optional
    priority : int
        Negative ones come from streams of their own.
    """

    def __init__(self, device: Any = None, priority: int = 0, **existing: Any) -> None:
        self.device = _device(device)
        self.device_index = 0
        self.device_type = 1
        self.priority = priority
        self._machine = recorder().machine
        self._made = place()
        known = existing.get("stream_id")
        self._number = self._new() if known is None else int(known)
        self._entered: list[int] = []

    def _new(self) -> int:
        return recorder().machine.new_stream(self.priority < 0, self._made)

    @property
    def stream_id(self) -> int:
        """The number of the stream; a new one if it was made in an audit before."""
        if self._machine is not recorder().machine:
            self._machine = recorder().machine
            self._number = self._new()
        return self._number

    cuda_stream = native_handle = stream_id

    def wait_event(self, event: Event) -> None:
        """Let later work of this stream wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work of this stream wait for all that another one has been given."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one by default."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is known to have ended."""
        machine = recorder().machine
        return machine.asks(machine.streams[self.stream_id].record(), ("stream", self.stream_id))

    def is_capturing(self) -> bool:
        """Whether its work becomes a graph: it never does."""
        return False

    def synchronize(self) -> None:
        """Let the host wait for all work."""
        machine = recorder().machine
        machine.streams[self.stream_id].record().wait_here()

    def __enter__(self) -> Stream:
        """Make it current."""
        self._entered.append(recorder().stream)
        recorder().stream = self.stream_id
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Make the one current that was."""
        recorder().stream = self._entered.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return hash(("stream", self.stream_id))

    def __repr__(self) -> str:
        return f"<simulated stream {self.stream_id}>"


class Event:
    """An event of the simulated device, with the methods of ``torch.cuda.Event``."""

    def __init__(
        self,
        device: Any = None,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        self.device = torch.device("cuda", 0)
        self._timed = enable_timing if not isinstance(device, bool) else device
        self._recorded: SimulatedEvent | None = None
        self._machine = recorder().machine

    @property
    def _point(self) -> SimulatedEvent | None:
        return self._recorded if self._machine is recorder().machine else None

    def record(self, stream: Stream | None = None) -> None:
        """Take the place after all that a stream has been given, by default the current one."""
        index = recorder().stream if stream is None else stream.stream_id
        self._machine = recorder().machine
        self._recorded = self._machine.streams[index].record()

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of a stream wait for it."""
        index = recorder().stream if stream is None else stream.stream_id
        if self._point is not None:
            recorder().machine.streams[index].wait(self._point)

    def synchronize(self) -> None:
        """Let the host wait for it."""
        if self._point is not None:
            self._point.wait_here()

    def query(self) -> bool:
        """Whether it is known to have happened."""
        return self._point is None or recorder().machine.asks(self._point, id(self))

    def elapsed_time(self, end_event: Event) -> float:
        """Return milliseconds of the simulated device between two events."""
        if not (self._timed and end_event._timed):
            raise ValueError("elapsed_time needs events that were made with enable_timing=True")
        if self._point is None or end_event._point is None:
            raise ValueError("elapsed_time needs events that were recorded")
        return (end_event._point.time - self._point.time) / _MILLISECOND


class StreamContext:
    """The context manager ``torch.cuda.stream(stream)``; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        """Make the stream current."""
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        """Make the one current that was."""
        if self.stream is not None:
            self.stream.__exit__(*error)


def current_stream(device: Any = None) -> Stream:
    """Return the stream that is current in the calling thread."""
    return Stream(device, stream_id=recorder().stream)


def default_stream(device: Any = None) -> Stream:
    """Return the default stream."""
    return Stream(device, stream_id=0)


def set_stream(stream: Stream | None) -> None:
    """Make a stream current until further notice."""
    if stream is not None:
        recorder().stream = stream.stream_id


def synchronize(device: Any = None) -> None:
    """Let the host wait for all streams."""
    _device(device)
    recorder().machine.host_waits_for_all()
