"""The link of the device at hand: alone, both ways at once, and while operators run.

A measured problem has both: the rates of one direction alone, which a transfer cannot beat, and,
where the link serves both directions at once, those while it does and the device computes. Bounds
count with the former, which are those of the fastest copy; schedules slow a transfer down while the
other direction runs, by the median copy.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch

from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.trace import Trace
from offcert.core.uncertainty import Uncertainty
from offcert.runtime.device.cuda import CudaDevice
from offcert.runtime.device.host import HostStore
from offcert.runtime.device.interface import Arena, CopiedStorage, Device, DeviceEvent
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware.model import NS_PER_SECOND

# Bytes of a copy by which a link is measured. Arbitrary.
_COPY_BYTES = 64 * 2**20
# Bytes of such a copy on the CPU, where a device is simulated and they are copied for nothing, and
# the number of copies, at most. Arbitrary.
_SMALL_COPY_BYTES = 2**20
_MOST_COPIES = 100
_OUT, _BACK = "ob"
# Part of its own rate that each direction must reach for the link to count as duplex. Directions
# that take turns get half each; this is a bit more. Assumed.
_AT_ONCE = Fraction(3, 5)


Span = tuple[DeviceEvent, DeviceEvent]
Compute = Callable[[], Sequence[Span]]


@dataclass(frozen=True)
class Rates:
    """Bytes per nanosecond to the host and from it."""

    out: Fraction
    back: Fraction

    def to_json(self) -> list[int]:
        """Return whole bytes per second, for people and for other tools."""
        return [int(rate * NS_PER_SECOND) for rate in (self.out, self.back)]


@dataclass(frozen=True)
class LinkReading:
    """Measured rates of a link."""

    alone: Rates  # One direction at a time, and nothing else, by the fastest copy
    # Both at once, by the median copy. None on the CPU, which copies by itself.
    together: Rates | None = None
    # While operators run; both at once if the link is duplex. None if it was not measured.
    computing: Rates | None = None
    # Nanoseconds that computing took meanwhile, without and with the copies.
    computing_ns: int | None = None
    copying_ns: int | None = None
    # Where the host's memory was, in words that follow "the arena is"; None on the CPU.
    arena: str | None = None

    @property
    def link(self) -> Link:
        """Duplex if both directions at once move more than they would by turns."""
        if self.together is None:
            return Link.SIMPLEX
        shares = self.together.out / self.alone.out, self.together.back / self.alone.back
        return Link.DUPLEX if min(shares) >= _AT_ONCE else Link.SIMPLEX

    @property
    def rates(self) -> Rates:
        """The best that each direction did; alone, if nothing but chance made it slower then."""
        found = [each for each in (self.alone, self.together, self.computing) if each is not None]
        return Rates(max(each.out for each in found), max(each.back for each in found))

    @property
    def busy(self) -> Rates | None:
        """The rates while the other direction runs, too; None if the link is simplex.

        They are those while operators run, as they do in a step, if they were measured.
        """
        return (self.computing or self.together) if self.link is Link.DUPLEX else None

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value, for the ``source`` of a problem."""
        rates = {"alone": self.alone, "together": self.together, "computing": self.computing}
        document: dict[str, Any] = {name: rate and rate.to_json() for name, rate in rates.items()}
        for name in ("computing_ns", "copying_ns", "arena"):
            document[name] = getattr(self, name)
        return {name: value for name, value in document.items() if value is not None}


class _Direction:
    """Copies in one direction, one after the other, each between two events."""

    def __init__(self, device: Device, outwards: bool, size: int) -> None:
        self._device = device
        self._outwards = outwards
        self._size = size
        self._arena: Arena = device.arena(size)
        self._part = CopiedStorage(device.allocate(size), self._arena, 0)
        self._events: list[Span] = []

    def give(self) -> None:
        """Hand a copy over; the first begins when operators have ended that were given so far."""
        device = self._device
        stream = device.out if self._outwards else device.back
        if not self._events:
            stream.wait(device.compute.record())
        begun = stream.record()
        (device.copy_out if self._outwards else device.copy_back)([self._part])
        self._events.append((begun, stream.record()))

    def rate(self, span: Span | None = None, *, best: bool = False) -> Fraction:
        """Return bytes per nanosecond, by the median copy or the fastest.

        If there are any in a span, only these count.
        """
        chosen = self._events
        if span is not None:
            begin, end = map(self.until, span)
            inside = [
                (begun, ended)
                for begun, ended in chosen
                if begin <= self.until(begun) and self.until(ended) <= end
            ]
            chosen = inside or chosen
        times = [self._device.nanoseconds(*copy) for copy in chosen]
        taken = min(times) if best else round(statistics.median(times))
        return Fraction(self._size, max(1, taken))

    def until(self, event: DeviceEvent) -> int:
        """Return the time from the first copy's beginning to an event that came later."""
        return self._device.nanoseconds(self._events[0][0], event)

    def lasted(self) -> int:
        """Return the time from the beginning of the first copy to the end of the last."""
        return self.until(self._events[-1][1])

    def close(self) -> None:
        """Wait for the copies, and give their memory back."""
        self._device.synchronise()
        self._arena.close()


def _measure(
    device: Device,
    directions: str,
    size: int,
    copies: int,
    compute: Compute | None = None,
) -> tuple[list[Fraction], int | None]:
    """Return rates of copies, and how long was computed meanwhile if they lasted longer."""
    lanes: list[_Direction] = []
    try:
        lanes += [_Direction(device, direction == _OUT, size) for direction in directions]
        # By turns, so that no direction is ahead of the other.
        for lane in lanes * copies:
            lane.give()
        spans = [] if compute is None else compute()
        device.synchronise()
        if not spans:
            return [lane.rate(best=len(lanes) == 1) for lane in lanes], None
        begin, end = spans[0][0], spans[-1][1]
        covered = all(lane.until(end) <= lane.lasted() for lane in lanes)
        computed = sum(device.nanoseconds(*span) for span in spans)
        return [lane.rate((begin, end)) for lane in lanes], computed if covered else None
    finally:
        for lane in lanes:
            lane.close()


def read_link(
    device: Device,
    compute: Compute | None = None,
    compute_ns: int = 0,
    copies: int = 8,
) -> LinkReading:
    """Measure the link of a device with streams, whose events know times.

    `compute` hands operators over to ``compute``, and returns events between which they run; they
    take `compute_ns` without copies. `copies` are made in each direction while nothing is computed.
    """
    size = _COPY_BYTES if device.tensors.type == "cuda" else _SMALL_COPY_BYTES
    alone = Rates(*(_measure(device, way, size, copies)[0][0] for way in (_OUT, _BACK)))
    together = Rates(*_measure(device, _OUT + _BACK, size, copies)[0])
    # The same wish is made for every arena.
    probe = device.arena(1)
    idle = LinkReading(alone, together, arena=probe.where)
    probe.close()
    if compute is None:
        return idle
    ways = [_OUT + _BACK] if idle.link is Link.DUPLEX else [_OUT, _BACK]
    slowest = min(idle.rates.out, idle.rates.back)
    # A third more, for what it takes to hand them over; as many as a stream takes without a wait.
    wanted = max(copies, min(_MOST_COPIES, round(compute_ns * slowest * 4 / 3 / size) + 2))
    found = [_measure(device, way, size, wanted, compute) for way in ways]
    times = [computed for _, computed in found if computed is not None]
    return LinkReading(
        alone,
        together,
        Rates(*(rate for rates, _ in found for rate in rates)),
        compute_ns,
        max(times) if times else None,
        idle.arena,
    )


def read_link_of(device: torch.device) -> LinkReading:
    """Measure the link of a CUDA device, or of the CPU: the copy to a memory-mapped file."""
    if device.type == "cuda":
        return read_link(CudaDevice(device, timed=True))
    on_device = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device="cpu")
    on_host = HostStore(_COPY_BYTES).view(0, _COPY_BYTES)
    out, back = copy_time(on_device, on_host), copy_time(on_host, on_device)
    return LinkReading(Rates(Fraction(_COPY_BYTES, out), Fraction(_COPY_BYTES, back)))


def copy_time(source: torch.Tensor, target: torch.Tensor, repetitions: int = 5) -> int:
    """Return the nanoseconds that one copy by the CPU takes, at least one."""
    times = []
    for _ in range(repetitions + 1):
        begun = time.perf_counter_ns()
        target.copy_(source)
        times.append(time.perf_counter_ns() - begun)
    return max(1, round(statistics.median(times[1:])))


def memory_and_name(device: torch.device) -> tuple[int, str]:
    """Return the bytes of the device's memory that PyTorch can have, and what it is called."""
    if device.type == "cuda":
        # Without the driver's context, and whatever others have.
        free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
        return free, torch.cuda.get_device_name(device)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "cpu"


@dataclass(frozen=True)
class Measurement:
    """Rates of a device, measured or stated."""

    trace: Trace  # Durations are nanoseconds
    rates: Rates  # Of each direction, alone
    memory: int  # Bytes of the device
    device: str  # Its name
    link: Link = Link.SIMPLEX  # Whether both directions are served at once
    details: Mapping[str, Any] = field(default_factory=dict)  # Other measurements, as a JSON value
    # The least and the most nanoseconds of each operation, if it was timed several times.
    spread: tuple[tuple[int, int], ...] = ()
    busy: Rates | None = None  # The rates while the other direction runs, too; by default as alone

    @property
    def uncertainty(self) -> Uncertainty | None:
        """The box of what was measured; None if every step took the same times."""
        if all(least == most for least, most in self.spread):
            return None
        return Uncertainty(ticks=self.spread)

    def platform(self, memory: int) -> Platform:
        """Return the device with a limit of so many bytes."""
        found, busy = Platform(memory, self.rates.out, self.link, self.rates.back), self.busy
        if busy is None:
            return found
        return replace(found, busy_bandwidth=busy.out, busy_prefetch_bandwidth=busy.back)


def spread_of(samples: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Return the least and the most of each operation's times over some steps."""
    return tuple((min(times), max(times)) for times in zip(*samples, strict=True))


def modelled(trace: Trace, hardware: Hardware, link: Link = Link.DUPLEX) -> Measurement:
    """Return rates and memory of a modelled accelerator, with a trace that it gave durations.

    A link serves both directions at once, at the rates that hold then, if these are known and the
    link is not said to be simplex, as in the papers.
    """
    both = link is Link.DUPLEX and hardware.link_both is not None
    rates = Rates(*(Fraction(r, NS_PER_SECOND) for r in hardware.link_rates(at_once=both)))
    serving = Link.DUPLEX if both else Link.SIMPLEX
    return Measurement(trace, rates, hardware.memory, hardware.name, serving)


def measured(trace: Trace, device: torch.device) -> Measurement:
    """Return rates and memory of the device at hand, with a trace that was timed on it."""
    return with_link(trace, read_link_of(device), *memory_and_name(device))


def with_link(trace: Trace, reading: LinkReading, memory: int, device: str) -> Measurement:
    """Return a measurement with the rates of a link."""
    details = {"link": reading.to_json()}
    link = reading.link
    return Measurement(trace, reading.rates, memory, device, link, details, busy=reading.busy)


def retimed(
    trace: Trace, durations: Sequence[int], workspaces: Sequence[int] | None = None
) -> Trace:
    """Return a trace with other durations, and other workspaces if there are any."""
    if workspaces is None:
        workspaces = [operation.workspace for operation in trace.operations]
    operations = [
        replace(operation, duration=duration, workspace=workspace)
        for operation, duration, workspace in zip(
            trace.operations, durations, workspaces, strict=True
        )
    ]
    return Trace(operations, trace.tensors)


def retimed_network(network: Network, trace: Trace) -> Network:
    """Return a network with the durations and workspaces of a trace in which all runs once."""
    computations = [
        replace(each, duration=operation.duration, workspace=operation.workspace)
        for each, operation in zip(network.computations, trace.operations, strict=True)
    ]
    return Network(computations, network.values)
