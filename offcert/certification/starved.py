"""Seconds for which this process could run while others had the processors."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from offcert.core.threads import cores

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
        """Return the seconds since the last look that others have taken from this process."""
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
