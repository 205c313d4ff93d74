"""Limits of verification, and the errors where a proof would need more."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from offcert.core.errors import InputError, OffcertError

# Bytes that a search takes for each label that it may hold, arrays grown twofold. Assumed.
_BYTES_PER_LABEL = 320
# Labels of the smallest search that is worth starting. Arbitrary.
_FEWEST_LABELS = 1000


class TooLargeError(Exception):
    """The numbers might not fit into 64 bits, or the advice asks for too fine a search."""


class BeyondLimitsError(OffcertError):
    """A claim may well be true, but to establish it takes more than the limits allow."""


@dataclass(frozen=True)
class Limits:
    """The limits of time and memory for verifying one certificate.

    Attributes
    ----------
    seconds : float
        Looked at between the parts of a search; infinite by default.
    memory : float
        Bytes that searches may hold; infinite by default, where each search has a limit of its own.
    document : float
        Bytes of the file, and of what is packed in it; infinite by default.
    """

    seconds: float = math.inf
    memory: float = math.inf
    document: float = math.inf

    def __post_init__(self) -> None:
        for name in ("seconds", "memory", "document"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not value > 0:
                raise InputError(f"limits.{name} must be a positive number, not {value!r:.60}")

    def begin(self) -> Allowance:
        """Return an allowance of these limits whose seconds begin to count now."""
        return Allowance(self, time.monotonic() + self.seconds)


@dataclass(frozen=True)
class Allowance:
    """The part of some limits that is left while a certificate is verified."""

    limits: Limits  # The limits with which verification began
    deadline: float  # Of the monotonic clock, in seconds

    @property
    def seconds(self) -> float:
        """Seconds left; not more than 0 if there are none."""
        return self.deadline - time.monotonic()

    def require_time(self) -> None:
        """Raise `BeyondLimitsError` if the time is over."""
        if self.seconds <= 0:
            raise BeyondLimitsError(f"{self.limits.seconds:g} seconds are over")

    def labels(self, most: int, searches: int = 1) -> int:
        """Return how many labels a search may hold.

        `most` it would hold without limits; `searches` run at the same time. Raises
        `BeyondLimitsError` if the time is over, or the memory is not worth a search.
        """
        self.require_time()
        if self.limits.memory == math.inf:
            return most
        held = int(self.limits.memory) // (_BYTES_PER_LABEL * searches)
        if held < _FEWEST_LABELS:
            raise BeyondLimitsError(f"{self.limits.memory:g} bytes are too few for a search")
        return min(most, held)


UNLIMITED = Limits()
