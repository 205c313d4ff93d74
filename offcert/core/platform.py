"""`Platform`: the device memory and the link to the host; and how documents hold it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from offcert.core.documents import Fields, parse_rational, rational_text
from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr
from offcert.core.trace import require_integer
from offcert.core.units import Units


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


def platform_from_fields(fields: Fields) -> Platform:
    """Return the memory and the link that the fields of a document describe.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing or wrong.
    """
    back = fields.optional("prefetch_bandwidth", str)
    return Platform(
        fields.integer("memory", 0),
        parse_rational(fields.get("bandwidth", str), fields.path("bandwidth")),
        fields.get("link", str),
        None if back is None else parse_rational(back, fields.path("prefetch_bandwidth")),
        fields.integer("sharing", 1) if fields.has("sharing") else 1,
    )


def platform_fields(platform: Platform) -> dict[str, Any]:
    """Return the fields of a document that describe a platform.

    What is as it was before there was a choice is left out, so that old documents keep their hash.
    """
    found: dict[str, Any] = {
        "memory": platform.memory,
        "bandwidth": rational_text(platform.bandwidth),
        "link": str(platform.link),
    }
    if platform.prefetch_bandwidth is not None:
        found["prefetch_bandwidth"] = rational_text(platform.prefetch_bandwidth)
    if platform.sharing > 1:
        found["sharing"] = platform.sharing
    return found


def units_from_fields(fields: Fields) -> Units:
    """Return the units that a document counts in.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    units = Fields(fields.get("units", dict), fields.path("units"))
    found = Units(units.get("time", str), units.get("size", str))
    units.finish()
    return found
