"""`Measurement`: a trace with durations, and the device that they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch

from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.trace import Trace
from offcert.core.uncertainty import Uncertainty
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware.bandwidth import LinkReading, memory_and_name, read_link_of

# Nanoseconds in a second. By definition.
_NS_PER_SECOND = 10**9


@dataclass(frozen=True)
class Measurement:
    """Rates of a device, measured or stated.

    Attributes
    ----------
    trace : Trace
        Durations are nanoseconds.
    bandwidth, prefetch_bandwidth : Fraction
        Bytes per nanosecond from the device to the host, and back.
    memory : int
        Bytes of the device.
    device : str
        Its name.
    link : Link
        Whether both directions are served at once.
    details : mapping
        Other measurements, as a JSON value.
    spread : tuple of (int, int)
        The least and the most nanoseconds of each operation, if it was timed several times.
    """

    trace: Trace
    bandwidth: Fraction
    prefetch_bandwidth: Fraction
    memory: int
    device: str
    link: Link = Link.SIMPLEX
    details: Mapping[str, Any] = field(default_factory=dict)
    spread: tuple[tuple[int, int], ...] = ()

    @property
    def uncertainty(self) -> Uncertainty | None:
        """The box of what was measured; None if every step took the same times."""
        if all(least == most for least, most in self.spread):
            return None
        return Uncertainty(ticks=self.spread)

    def platform(self, memory: int) -> Platform:
        """Return the device with a limit of so many bytes."""
        return Platform(memory, self.bandwidth, self.link, self.prefetch_bandwidth)


def spread_of(samples: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Return the least and the most of each operation's times over some steps."""
    return tuple((min(times), max(times)) for times in zip(*samples, strict=True))


def modelled(trace: Trace, hardware: Hardware, link: Link = Link.DUPLEX) -> Measurement:
    """Return rates and memory of a modelled accelerator, with a trace that it gave durations.

    A link serves both directions at once, at the rates that hold then, if these are known and the
    link is not said to be simplex, as in the papers.
    """
    both = link is Link.DUPLEX and hardware.link_both is not None
    out, back = (Fraction(rate, _NS_PER_SECOND) for rate in hardware.link_rates(at_once=both))
    serving = Link.DUPLEX if both else Link.SIMPLEX
    return Measurement(trace, out, back, hardware.memory, hardware.name, serving)


def measured(trace: Trace, device: torch.device) -> Measurement:
    """Return rates and memory of the device at hand, with a trace that was timed on it."""
    return with_link(trace, read_link_of(device), *memory_and_name(device))


def with_link(trace: Trace, reading: LinkReading, memory: int, device: str) -> Measurement:
    """Return a measurement with the rates that a schedule may count on."""
    rates = reading.rates
    details = {"link": reading.to_json()}
    return Measurement(trace, rates.out, rates.back, memory, device, reading.link, details)


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
