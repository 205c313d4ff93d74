"""Copies for our own use that are no live bytes of the step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from offcert.runtime.torch_private import dispatch_modes
from offcert.runtime.watch.tracker import LiveBytes


@contextmanager
def uncounted() -> Iterator[None]:
    """Do not count what the block allocates as live bytes of the step."""
    with ExitStack() as stack:
        for mode in dispatch_modes():
            if isinstance(mode, LiveBytes):
                stack.enter_context(mode.paused())
        yield


class Held:
    """Bytes of copies on the device, of all segments of the process; the most since `start`."""

    def __init__(self) -> None:
        self.live = self.peak = 0
        # A copy may die while another one is counted, in the same thread.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Forget the peak so far."""
        with self._lock:
            self.peak = self.live

    def take(self, size: int) -> None:
        """Count so many bytes more."""
        with self._lock:
            self.live += size
            self.peak = max(self.peak, self.live)

    def drop(self, size: int) -> None:
        """Count so many bytes less."""
        with self._lock:
            self.live -= size


HELD = Held()


class HeldBytes:
    """So many bytes of copies, counted until the object dies."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size
        HELD.take(size)

    def keep(self, size: int) -> None:
        """Count only so many of them from now on."""
        HELD.drop(self._size - size)
        self._size = size

    def __del__(self) -> None:
        HELD.drop(self._size)
