"""`Platform`: the device memory and the link to the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr
from offcert.core.trace import require_integer


class Kind(StrEnum):
    """Direction of a transfer."""

    OFFLOAD = "offload"
    PREFETCH = "prefetch"


class Link(StrEnum):
    """Whether the two directions of the link share it or not."""

    SIMPLEX = "simplex"
    DUPLEX = "duplex"


@dataclass(frozen=True)
class Platform:
    """Where a trace runs.

    Parameters
    ----------
    memory : int
        Bytes on the device.
    bandwidth : Fraction
        Bytes per tick from the device to the host; more than 0. What schedules asks `rate`.
    link : Link or str
        ``"simplex"``: one transfer at a time (the offloading paper's assumption B);
        ``"duplex"``: one transfer at a time in each direction.
    prefetch_bandwidth : Fraction, optional
        Bytes per tick from the host to the device, more than 0; by default the same as `bandwidth`,
        and None if it is the same, so that equal platforms compare equal.
    sharing : int
        Devices of the host that share the link, all of them busy at a time; at least 1. Each has
        its part of the bandwidth.

    Raises
    ------
    InputError
        If a value is out of its range.
    """

    memory: int
    bandwidth: Fraction
    link: Link = Link.SIMPLEX
    prefetch_bandwidth: Fraction | None = None
    sharing: int = 1

    def __post_init__(self) -> None:
        require_integer(self.memory, "memory", 0)
        object.__setattr__(self, "bandwidth", _positive(self.bandwidth, "bandwidth"))
        if self.prefetch_bandwidth is not None:
            back = _positive(self.prefetch_bandwidth, "prefetch_bandwidth")
            object.__setattr__(self, "prefetch_bandwidth", None if back == self.bandwidth else back)
        object.__setattr__(self, "sharing", require_integer(self.sharing, "sharing", 1))
        if self.link not in tuple(Link):
            raise InputError(f'link must be "simplex" or "duplex", not {short_repr(self.link)}')
        object.__setattr__(self, "link", Link(self.link))

    def __repr__(self) -> str:
        rates = f"{self.bandwidth}"
        if self.prefetch_bandwidth is not None:
            rates += f" out and {self.prefetch_bandwidth} back"
        shared = f", shared by {self.sharing} devices" if self.sharing > 1 else ""
        return f"<Platform: memory {self.memory}, {self.link} link, {rates} per tick{shared}>"

    @property
    def duplex(self) -> bool:
        """Whether the two directions are independent."""
        return self.link is Link.DUPLEX

    def rate(self, kind: Kind) -> Fraction:
        """Return the bytes per tick of a transfer in one direction."""
        whole = self.bandwidth
        if kind == Kind.PREFETCH and self.prefetch_bandwidth is not None:
            whole = self.prefetch_bandwidth
        return whole / self.sharing

    def transfer_time(self, size: int, kind: Kind) -> int:
        """Return the ticks that a transfer of `size` bytes lasts, rounded up by definition."""
        rate = self.rate(kind)
        return -(-size * rate.denominator // rate.numerator)


def _positive(value: object, field: str) -> Fraction:
    if not isinstance(value, (int, Fraction)) or isinstance(value, bool):
        raise InputError(f"{field} must be a rational, not {short_repr(value)}")
    if value <= 0:
        raise InputError(f"{field} must be more than 0, not {cut(str(value))}")
    return Fraction(value)
