"""`Platform`: the device memory and the link to the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from offcert.core.errors import InputError
from offcert.core.trace import require_integer


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
        Bytes per tick, in each direction; more than 0.
    link : Link or str
        ``"simplex"``: one transfer at a time (the offloading paper's assumption B);
        ``"duplex"``: one transfer at a time in each direction.

    Raises
    ------
    InputError
        If a value is out of its range.
    """

    memory: int
    bandwidth: Fraction
    link: Link = Link.SIMPLEX

    def __post_init__(self) -> None:
        require_integer(self.memory, "memory", 0)
        if not isinstance(self.bandwidth, (int, Fraction)) or isinstance(self.bandwidth, bool):
            raise InputError(f"bandwidth must be a rational, not {self.bandwidth!r}")
        object.__setattr__(self, "bandwidth", Fraction(self.bandwidth))
        if self.bandwidth <= 0:
            raise InputError(f"bandwidth must be more than 0, not {self.bandwidth}")
        if self.link not in tuple(Link):
            raise InputError(f'link must be "simplex" or "duplex", not {self.link!r}')
        object.__setattr__(self, "link", Link(self.link))

    @property
    def duplex(self) -> bool:
        """Whether the two directions are independent."""
        return self.link is Link.DUPLEX

    def transfer_time(self, size: int) -> int:
        """Return the ticks that a transfer of `size` bytes lasts, rounded up by definition."""
        return -(-size * self.bandwidth.denominator // self.bandwidth.numerator)
