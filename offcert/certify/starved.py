"""Seconds for which threads of this process could run while others had the processors."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

# How many times as long as on an idle machine things are taken to last at most. Arbitrary.
_MOST = 50.0


class Starved:
    """Tells how much longer everything takes than on an idle machine.

    Where the system does not count it (elsewhere than on Linux) nothing is starved.
    """

    def __init__(self) -> None:
        self._before = waits()
        self._began = time.perf_counter()
        self._total = 0.0

    def seconds(self) -> float:
        """Return the most seconds that a thread has waited since the last look."""
        now = waits()
        waited = max((each - self._before.get(name, 0) for name, each in now.items()), default=0)
        self._before = now
        self._total += waited / 1e9
        return waited / 1e9

    def slowness(self) -> float:
        """Return the seconds that have passed for each one in which the process could run."""
        self.seconds()
        passed = time.perf_counter() - self._began
        return min(_MOST, passed / max(passed - self._total, passed / _MOST, 1e-9))


def waits() -> dict[str, int]:
    """Return the nanoseconds that each thread has waited for a processor."""
    found: dict[str, int] = {}
    with suppress(OSError, ValueError, IndexError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError):
                found[thread.name] = int((thread / "schedstat").read_text().split()[1])
    return found
