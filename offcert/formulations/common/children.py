"""Solvers that run as processes end when the one who waits for them is interrupted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def stopping_children() -> Iterator[None]:
    """Kill what this thread started inside the block if an exception (an interrupt) leaves it.

    PuLP does not, and a solver without anybody who waits for it computes until its time limit.
    Where the system does not list children (elsewhere than on Linux) nothing is killed.
    """
    before = _children()
    try:
        yield
    except BaseException:
        for pid in _children() - before:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        raise


def _children() -> set[int]:
    task = Path("/proc/self/task", str(threading.get_native_id()), "children")
    try:
        return set(map(int, task.read_text().split()))
    except OSError:
        return set()
