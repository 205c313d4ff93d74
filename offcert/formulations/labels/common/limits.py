"""What ends a search over labels before it has proved all that it can: time, or labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class OutOfTimeError(Exception):
    """The time is over, or somebody has asked to stop."""


class OutOfLabelsError(Exception):
    """A search has grown to the size it is allowed."""


class Deadline:
    """When a search has to pause that can be taken up again.

    Parameters
    ----------
    stop : callable, optional
        Asked from time to time; if it returns true, the time is over.
    """

    def __init__(self, stop: Callable[[], bool] | None = None) -> None:
        self._stop = stop
        self._end = 0.0

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Leave the block as soon as `check` finds that it has taken so many seconds."""
        self._end = time.monotonic() + seconds
        with suppress(OutOfTimeError):
            yield

    def check(self) -> None:
        """Return if there is time left.

        Raises
        ------
        OutOfTimeError
            If not.
        """
        if time.monotonic() > self._end or (self._stop is not None and self._stop()):
            raise OutOfTimeError
