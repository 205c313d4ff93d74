"""Work in a process of its own that cannot outlast its time or take more memory than it may."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from offcert.cli.ending import exit_code

# Seconds that work gets to end by itself once its time is over.
_GRACE = 2.0
_POLLING = 0.02
# What Python itself returns after an exception that nobody expected.
_EXIT_BUG = 1


def confined(
    prepare: Callable[[], object], work: Callable[[], int], seconds: float, memory: float
) -> int | None:
    """Return the exit code of some work, or None if it did not end within its limits.

    The work is to look at its time itself; what does not is killed. Where processes cannot be
    forked, the work is done in this one, and nothing is killed.

    Parameters
    ----------
    prepare : callable
        What loads libraries: their memory does not count.
    work : callable
        Returns an exit code; what it prints is printed.
    seconds, memory : float
        Seconds and bytes; infinite for none.
    """
    if not _may_fork():
        prepare()
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    # An interrupt waits until there is somebody who ends the child.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if child == 0:
        _be_the_child(prepare, work, memory)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        status = _ended(child, seconds + _GRACE)
    except BaseException:
        _kill(child)
        raise
    if status is None:
        _kill(child)
        return None
    code = os.waitstatus_to_exitcode(status)
    return None if code < 0 else code


def _may_fork() -> bool:
    """Whether a forked process does what this one would: it has one thread and writes directly."""
    direct = sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__
    return hasattr(os, "fork") and threading.active_count() == 1 and direct


def _be_the_child(prepare: Callable[[], object], work: Callable[[], int], memory: float) -> None:
    """Do the work, say what its errors mean, and end the process whatever happens."""
    # Ctrl-C reaches both processes; the other one says so, and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def prepared() -> int:
        prepare()
        _limit_memory(memory)
        return work()

    try:
        code = exit_code(prepared)
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        code = _EXIT_BUG
    # Nothing of the parent's is to be cleaned up here.
    os._exit(code)


def _limit_memory(memory: float) -> None:
    """Let this process have so many bytes more than it has."""
    if memory == math.inf:
        return
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    most = pages * resource.getpagesize() + int(memory)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _ended(child: int, seconds: float) -> int | None:
    """Return the status with which a process has ended, or None if it has not within the time."""
    deadline = time.monotonic() + seconds
    if hasattr(os, "pidfd_open"):
        descriptor = os.pidfd_open(child)
        try:
            wait = None if seconds == math.inf else min(seconds, threading.TIMEOUT_MAX)
            ready, _, _ = select.select([descriptor], [], [], wait)
        finally:
            os.close(descriptor)
        return os.waitpid(child, 0)[1] if ready else None
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(_POLLING)
    return None


def _kill(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
