"""A pool of processes of which each may crash, hang or eat memory without hurting the others."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

# Characters of a failure's reason that the table keeps. Arbitrary.
_LONGEST_REASON = 500


@dataclass(frozen=True)
class PoolTask:
    """The items that one process works on."""

    items: tuple[Any, ...]  # One after the other, an answer for each; picklable.
    patience: float  # Seconds that each may take before the process is killed.


@dataclass(frozen=True)
class Failure:
    """In the place of an answer: why there is none, and after how many seconds."""

    reason: str
    seconds: float


@dataclass
class _Running:
    process: BaseProcess
    task: PoolTask
    answered: int
    since: float


class ProcessPool:
    """At most `jobs` processes at a time, one task each; a process that dies takes no other along.

    Processes are forked from a server that has loaded what they need, so that they start at once.
    Where one dies, its present item fails, and the items after it go to another process.

    Parameters
    ----------
    work : callable
        Takes an item and returns its answer; a function of a module, so that it can be pickled.
    jobs : int
        Processes at a time.
    most_bytes : int
        Address space of each; 0: no limit.
    preload : sequence of str
        Modules that the server loads. Only the first pool of a program decides, and only before it
        starts: the server is the program's.
    start : str
        ``"forkserver"``, or ``"fork"``: then processes are forked from this program as it is.
    """

    def __init__(
        self,
        work: Callable[[Any], Any],
        jobs: int,
        *,
        most_bytes: int = 0,
        preload: Sequence[str] = (),
        start: str = "forkserver",
    ) -> None:
        self.work = work
        self.jobs = jobs
        self.most_bytes = most_bytes
        self.context: Any = multiprocessing.get_context(start)
        if preload and start == "forkserver":
            self.context.set_forkserver_preload(list(preload))
        self.running: dict[Connection, _Running] = {}

    def run(self, tasks: Iterable[PoolTask]) -> Generator[tuple[Any, Any]]:
        """Yield every item with its answer, or with a `Failure`, as they come.

        Whoever stops early, by an exception or by closing the iterator, leaves no process behind.
        """
        queue = deque(task for task in tasks if task.items)
        try:
            while queue or self.running:
                while queue and len(self.running) < self.jobs:
                    self._start(queue.popleft())
                ready = wait(list(self.running), timeout=1.0)
                for receiver in [c for c in self.running if c in ready or self._overdue(c)]:
                    yield self._collect(receiver, queue)
        finally:
            for receiver, running in self.running.items():
                running.process.kill()
                receiver.close()
            self.running.clear()

    def _start(self, task: PoolTask) -> None:
        receiver, sender = self.context.Pipe(duplex=False)
        arguments = (self.work, task.items, self.most_bytes, sender)
        process = self.context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        sender.close()
        self.running[receiver] = _Running(process, task, 0, time.monotonic())

    def _overdue(self, receiver: Connection) -> bool:
        running = self.running[receiver]
        return time.monotonic() - running.since > running.task.patience

    def _collect(self, receiver: Connection, queue: deque[PoolTask]) -> tuple[Any, Any]:
        """Return one item and its answer; put what the process leaves undone back."""
        running = self.running[receiver]
        item = running.task.items[running.answered]
        seconds = time.monotonic() - running.since
        answer: Any
        alive = False
        if not receiver.poll():
            answer = Failure(f"killed after {seconds:.0f} s without an answer", seconds)
        else:
            try:
                alive, answer = receiver.recv()
            except (EOFError, OSError):
                running.process.join()
                answer = Failure(describe_death(running.process.exitcode), seconds)
            else:
                answer = answer if alive else Failure(answer, seconds)
        running.answered += 1
        running.since = time.monotonic()
        rest = running.task.items[running.answered :]
        if not (alive and rest):
            del self.running[receiver]
            # All that it was for is here; how it would end is of no interest.
            running.process.kill()
            running.process.join()
            receiver.close()
            if rest:
                queue.appendleft(PoolTask(rest, running.task.patience))
        return item, answer


def serve(
    work: Callable[[Any], Any], items: Sequence[Any], most_bytes: int, sender: Connection
) -> None:
    """Answer one item after the other; the first exception is the last answer.

    Sends pairs: whether there is an answer, and it, or the reason why there is none.
    """
    # Ctrl-C reaches every process of the terminal, but only the one that asked may decide.
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(sender.fileno())
    # Solvers print at times; what this program prints is for other programs.
    os.dup2(2, 1)
    if most_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    for item in items:
        try:
            sender.send((True, work(item)))
        except MemoryError as error:
            sender.send((False, _cut(f"out of memory: {error}".rstrip(": "))))
            return
        except BaseException as error:
            sender.send((False, _cut(f"{type(error).__name__}: {error}")))
            return


def end_with(sender: int) -> None:
    """End this process when nobody reads from a pipe any more: its reader was killed."""

    def watch() -> None:
        poll = select.poll()
        # Errors, such as a reader that is gone, are reported without being asked for.
        poll.register(sender, 0)
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 3] + "..."


def describe_death(exitcode: int | None) -> str:
    """Return why a process that gave no answer ended, from its exit code (negative: a signal)."""
    if exitcode is None or exitcode >= 0:
        return f"the process ended with exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    if -exitcode == signal.SIGKILL:
        return f"killed by {name}, as the system does when it is out of memory"
    return f"killed by {name}"
