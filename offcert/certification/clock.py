"""Seconds that a time limit counts: those of loading, and those that others have taken.

Of the time for loading modules and compiled kernels half a second counts for nothing. What is
beyond that is taken from the search, but for its last two seconds (half of a short limit), so that
a command ends soon after its limit where other work makes loading long. Seconds for which this
process could run while other programs had the processors make its steps longer (`Starved`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from offcert.core.threads import cores

# Seconds that no time limit counts. Arbitrary: a quarter of what a search may take beside it.
FREE = 0.5
# Seconds, and the part of a limit, that are left to the search however long loading takes: the
# lesser counts. Arbitrary.
_LEFT, _LEFT_PART = 2.0, 0.5

_since: ContextVar[float | None] = ContextVar("loading_since", default=None)


@contextmanager
def loading_since(began: float | None) -> Iterator[None]:
    """Let the search that begins in the block count loading from an earlier time on.

    `began` is by ``time.monotonic``; None if nothing was loaded for this search.
    """
    before = _since.set(began)
    try:
        yield
    finally:
        _since.reset(before)


class Loading:
    """Seconds of loading that are still free for a search, and those that may still count."""

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
        """Return how many of the seconds of loading before the search count; a part has none."""
        since = _since.get()
        if since is None:
            return 0.0
        _since.set(None)
        return self.counted(now - since)


# How many times as long as on an idle machine things are taken to last at most. Arbitrary.
_MOST = 50.0


class Starved:
    """Tells how much longer everything takes than on an idle machine.

    Threads of this process that wait for each other's processors are not starved. Where the system
    does not count it (elsewhere than on Linux) nothing is starved.
    """

    def __init__(self) -> None:
        self._before = ran_and_waited()
        self._began = self._last = time.perf_counter()
        self._total = 0.0

    def seconds(self) -> float:
        """Return the seconds that others have taken from this process since the last call."""
        now, last, before = ran_and_waited(), self._last, self._before
        self._last, self._before = time.perf_counter(), now
        passed = self._last - last
        ran, waited = (
            sum(each[n] - before.get(name, (0, 0))[n] for name, each in now.items()) / 1e9
            for n in range(2)
        )
        # No more threads run at once than there are processors.
        wanted = min(ran + waited, passed * cores())
        lost = (wanted - ran) * passed / max(passed, wanted, 1e-9)
        lost = min(passed, max(0.0, lost))
        self._total += lost
        return lost

    def slowness(self) -> float:
        """Return the seconds that have passed for each one in which the process could run."""
        self.seconds()
        passed = time.perf_counter() - self._began
        return min(_MOST, passed / max(passed - self._total, passed / _MOST, 1e-9))


def ran_and_waited() -> dict[str, tuple[int, int]]:
    """Return for how many nanoseconds each thread has run, and waited for a processor."""
    found: dict[str, tuple[int, int]] = {}
    with suppress(OSError, ValueError, IndexError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError):
                ran, waited = (thread / "schedstat").read_text().split()[:2]
                found[thread.name] = int(ran), int(waited)
    return found
