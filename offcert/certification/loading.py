"""The part of the time for loading modules and compiled kernels that a time limit counts.

Half a second of it counts for nothing. What is beyond that is taken from the search, but for its
last two seconds (half of a short limit), so that a command ends soon after its limit where other
work makes loading long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Seconds that no time limit counts. Arbitrary: a quarter of what a search may take beside it.
FREE = 0.5
# Seconds, and the part of a limit, that are left to the search however long loading takes: the
# lesser counts. Arbitrary.
_LEFT, _LEFT_PART = 2.0, 0.5

_since: ContextVar[float | None] = ContextVar("loading_since", default=None)


@contextmanager
def loading_since(began: float | None) -> Iterator[None]:
    """Let the search that begins in the block count loading from some time on.

    Parameters
    ----------
    began : float or None
        By ``time.monotonic``; None if nothing was loaded for this search.
    """
    before = _since.set(began)
    try:
        yield
    finally:
        _since.reset(before)


class Loading:
    """The rest of the seconds that a search may load for nothing, and of those that count.

    Parameters
    ----------
    time_limit : float
        Seconds of the search.
    """

    def __init__(self, time_limit: float) -> None:
        self._free = FREE
        self._countable = time_limit - min(_LEFT, _LEFT_PART * time_limit)

    def counted(self, seconds: float) -> float:
        """Return how many of some seconds of loading the time limit counts."""
        free = min(seconds, self._free)
        self._free -= free
        counted = min(seconds - free, self._countable)
        self._countable -= counted
        return counted

    def counted_before(self, now: float) -> float:
        """Return the same of the seconds before the search; parts of it had none before them."""
        since = _since.get()
        if since is None:
            return 0.0
        _since.set(None)
        return self.counted(now - since)
