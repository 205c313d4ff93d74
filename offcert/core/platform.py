"""`Platform`: the device memory and the link to the host; and how documents hold it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Absent, Integer, Member, Object, Rational, Record
from offcert.core.messages import cut, short_repr
from offcert.core.trace import require_integer
from offcert.core.units import Units, format_rate


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
    """A device with its memory, and its link to the host.

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
    busy_bandwidth, busy_prefetch_bandwidth : Fraction, optional
        Bytes per tick to the host and from it while the other direction of a duplex link runs, too;
        more than 0, and at most the rates above, which the directions then have alone. By default
        no direction slows the other down; both are None if they are the same as those.

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
    busy_bandwidth: Fraction | None = None
    busy_prefetch_bandwidth: Fraction | None = None

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
        self._validate_busy()

    def _validate_busy(self) -> None:
        alone = [self.bandwidth, self.prefetch_bandwidth or self.bandwidth]
        names = ("busy_bandwidth", "busy_prefetch_bandwidth")
        given = [getattr(self, name) for name in names]
        if given == [None, None]:
            return
        if not self.duplex:
            raise InputError(f"{names[given[0] is None]} is for duplex links; this one is simplex")
        for name, rate, best in zip(names, given, alone, strict=True):
            if rate is None:
                raise InputError(f"{name} is missing; a link has rates for both directions at once")
            busy = _positive(rate, name)
            if busy > best:
                raise InputError(f"{name} must be at most the rate alone, {best}, not {busy}")
            object.__setattr__(self, name, None if given == alone else busy)

    def __repr__(self) -> str:
        rates = f"{self.bandwidth}"
        if self.prefetch_bandwidth is not None:
            rates += f" out and {self.prefetch_bandwidth} back"
        if self.slows:
            rates += f" ({self.busy_bandwidth} and {self.busy_prefetch_bandwidth} at once)"
        shared = f", shared by {self.sharing} devices" if self.sharing > 1 else ""
        return f"<Platform: memory {self.memory}, {self.link} link, {rates} per tick{shared}>"

    @property
    def duplex(self) -> bool:
        """Whether the two directions are independent."""
        return self.link is Link.DUPLEX

    @property
    def slows(self) -> bool:
        """Whether a transfer is slower while the other direction runs."""
        return self.busy_bandwidth is not None

    @property
    def alone(self) -> Platform:
        """The platform on which no direction slows the other down: at most as slow, for bounds.

        Every schedule of this platform, with transfers that end earlier, is one of it.
        """
        if not self.slows:
            return self
        return replace(self, busy_bandwidth=None, busy_prefetch_bandwidth=None)

    @property
    def always_busy(self) -> Platform:
        """The platform on which both directions always do: at least as slow.

        Of a plan in its fixed order everything starts later there, or at the same time.
        """
        if not self.slows:
            return self
        assert self.busy_bandwidth is not None
        return replace(
            self.alone,
            bandwidth=self.busy_bandwidth,
            prefetch_bandwidth=self.busy_prefetch_bandwidth,
        )

    def rate(self, kind: Kind, *, busy: bool = False) -> Fraction:
        """Return the bytes per tick of a transfer in one direction.

        Parameters
        ----------
        kind : Kind
            The direction.
        busy : bool
            Whether the other direction runs, too.
        """
        back = kind == Kind.PREFETCH
        whole = self.bandwidth
        if busy and self.slows:
            chosen = self.busy_prefetch_bandwidth if back else self.busy_bandwidth
            assert chosen is not None
            whole = chosen
        elif back and self.prefetch_bandwidth is not None:
            whole = self.prefetch_bandwidth
        return whole / self.sharing

    def transfer_time(self, size: int, kind: Kind) -> int:
        """Return the ticks that a transfer of `size` bytes lasts, rounded up by definition.

        Where the other direction slows it down, it lasts longer: until what it has moved, tick by
        tick at the rate that holds, is `size` or more (`offcert.questions.schedule.slowing`).
        """
        rate = self.rate(kind)
        return -(-size * rate.denominator // rate.numerator)


def _positive(value: object, field: str) -> Fraction:
    if not isinstance(value, (int, Fraction)) or isinstance(value, bool):
        raise InputError(f"{field} must be a rational, not {short_repr(value)}")
    if value <= 0:
        raise InputError(f"{field} must be more than 0, not {cut(str(value))}")
    return Fraction(value)


def rates_text(platform: Platform, units: Units) -> str:
    """Return the rate of the link for people, both if they differ, and those of both at once."""

    def both(busy: bool) -> str:
        rates = [platform.rate(kind, busy=busy) for kind in Kind]
        out, back = (format_rate(rate, units) for rate in rates)
        return out if rates[0] == rates[1] else f"{out} out, {back} back"

    return f"{both(False)} ({both(True)} at once)" if platform.slows else both(False)


_RATE = Absent(Rational())
# Memory and link among other fields of a document. What is as it was before there was a choice is
# left out, so that old documents keep their hash.
PLATFORM = Record(
    Platform,
    memory=Integer(0),
    bandwidth=Rational(),
    link=Member(Link),
    prefetch_bandwidth=_RATE,
    sharing=Absent(Integer(1), 1),
    busy_bandwidth=_RATE,
    busy_prefetch_bandwidth=_RATE,
)
# The units that a document counts in.
UNITS = Object(Record(Units, time=TEXT, size=TEXT))
