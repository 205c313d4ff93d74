"""Solvers that nobody waits for: their processes are killed, their threads left running."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def stopping_children() -> Iterator[None]:
    """Kill processes that this thread started in the block if an exception leaves it.

    PuLP does not, so the solver would go on until its time limit.
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


_left_behind: list[threading.Thread] = []


def leave_behind(thread: threading.Thread) -> None:
    """Remember a thread that does not end; see `threads_left_behind`."""
    _left_behind.append(thread)


def threads_left_behind() -> bool:
    """Return whether some solver is still at work in a thread that nobody waits for.

    Python's way out then is not safe: what the solver calls is gone while it still runs.
    """
    return any(thread.is_alive() for thread in _left_behind)
