"""HiGHS, by way of SciPy, in a process of its own.

Inside this process it could not be stopped (SciPy returns when HiGHS does, and Ctrl-C waits until
then), it may take no notice of its time limit, and if it crashed or were killed for its memory,
everything found so far would go with it. The process is started once, and again when it has ended;
a program and its answer take well under a millisecond to hand over.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from scipy.optimize import OptimizeResult

# SciPy's status for all that is no optimum, limit or proof. Given by SciPy.
FAILED = 4
# HiGHS is stopped when it has taken its time limit times this factor, plus these seconds.
# Arbitrary.
OVERRUN_FACTOR, OVERRUN_SECONDS = 1.5, 3.0
# Seconds in which the process must have loaded its modules, before HiGHS starts. Arbitrary.
START_SECONDS = 30.0
WORKER = Path(__file__).with_name("highs_worker.py")


class _Worker:
    """A running process, and the connection to it."""

    def __init__(self) -> None:
        # Where programs go and answers come from.
        self.pipe, far = Pipe()
        # Its own session: Ctrl-C in a terminal is for this process, which then stops that one.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(far.fileno())],
            stdin=subprocess.DEVNULL,
            # HiGHS prints a line here and there, whatever its options say.
            stdout=subprocess.DEVNULL,
            pass_fds=[far.fileno()],
            start_new_session=True,
        )
        far.close()
        self._owner = os.getpid()
        self._ready = False

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def ours(self) -> bool:
        """Whether this very process started it, not the one it was forked from."""
        return self._owner == os.getpid()

    @property
    def usable(self) -> bool:
        """Whether it can be asked."""
        return self.ours and not self.pipe.closed and self._process.poll() is None

    def wait_until_ready(self) -> bool:
        """Wait for the process to start; return whether it has in time."""
        if not self._ready:
            self._ready = self.pipe.poll(START_SECONDS)
            if self._ready:
                self.pipe.recv()
        return self._ready

    def stop(self) -> str:
        """End the process, and return what can be said of its end."""
        self.pipe.close()
        # If it has ended by itself, it may take a moment until the system knows how.
        try:
            code = self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return "was stopped"
        if code < 0:
            return f"was ended by signal {-code} ({signal.Signals(-code).name})"
        return f"ended with exit code {code}"


_lock = threading.Lock()
_worker: _Worker | None = None


def run_highs(program: str, time_limit: float, **arguments: Any) -> Any:
    """Solve a program with HiGHS by a function of `scipy.optimize`: ``"milp"`` or ``"linprog"``.

    The time limit (seconds) is among the function's options, too, and here lets HiGHS be stopped if
    it takes far longer. Return what the function returned. If it returned nothing, because it
    failed, crashed, was killed or took too long: ``status`` `FAILED`, a message, and None for
    values.
    """
    global _worker
    with _lock:
        if _worker is None or not _worker.usable:
            _worker = _Worker()
        try:
            return _ask(_worker, program, time_limit, arguments)
        except BaseException:
            # Mostly an interrupt: nobody waits for what HiGHS is doing any more.
            _worker.stop()
            raise


def run_linprog(
    cost: Any, matrix: Any, limits: Any, bounds: Any, time_limit: float, method: str = "highs"
) -> Any:
    """Minimise a linear program whose rows are at most their limits; errors as for `run_highs`."""
    return run_highs(
        "linprog",
        time_limit,
        c=cost,
        A_ub=matrix,
        b_ub=limits,
        bounds=bounds,
        method=method,
        options={"time_limit": time_limit},
    )


def end_process() -> None:
    """End the process that runs HiGHS, if there is one; the next program starts another."""
    with _lock:
        if _worker is not None and _worker.usable:
            _worker.stop()


def _ask(worker: _Worker, program: str, time_limit: float, arguments: dict[str, Any]) -> Any:
    limit = OVERRUN_FACTOR * time_limit + OVERRUN_SECONDS
    answer: Any = None
    try:
        if not worker.wait_until_ready():
            worker.stop()
            return _failed(f"HiGHS did not start within {START_SECONDS:g} s")
        deadline = time.monotonic() + limit
        worker.pipe.send((program, arguments))
        while not worker.pipe.poll(min(60.0, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                worker.stop()
                return _failed(f"HiGHS was stopped after {limit:g} s")
        answer = worker.pipe.recv()
    except (EOFError, OSError):
        return _failed(f"HiGHS {worker.stop()}")
    return _failed(answer) if isinstance(answer, str) else answer


def _failed(message: str) -> Any:
    nothing = dict.fromkeys(("x", "fun", "mip_dual_bound"))
    result: Any = OptimizeResult()
    result.update({"status": FAILED, "message": message, "success": False, **nothing})
    return result


@atexit.register
def _end() -> None:
    if _worker is not None and _worker.ours:
        _worker.stop()
