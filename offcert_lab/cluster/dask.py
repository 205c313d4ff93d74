"""Cells on a Dask cluster, each in a process of its own there: a crash costs no worker."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from offcert.campaign.pool import Failure, PoolTask, describe_death
from offcert.core.errors import InputError, OffcertError

# Seconds to connect to a scheduler, and for its workers' processes to end. Arbitrary.
_CONNECT_SECONDS = 20
_END_SECONDS = 10


def run_on_cluster(
    work: Callable[[Any], Any],
    tasks: Sequence[PoolTask],
    scheduler: Any,
    *,
    most_bytes: int = 0,
    preload: Sequence[str] = (),
    connect_seconds: float = _CONNECT_SECONDS,
) -> Generator[tuple[Any, Any]]:
    """Yield every item with its answer, or with a `Failure`, as tasks end.

    Parameters
    ----------
    work, tasks, most_bytes, preload
        As for `offcert.campaign.pool.ProcessPool`.
    scheduler : str or distributed.Client
        Address of a Dask scheduler, whose workers have this package; or a client of it.
    connect_seconds : float
        Seconds in which a scheduler has to answer.

    Raises
    ------
    InputError
        If Dask is not there, or nobody answers at the address.
    OffcertError
        If the scheduler is lost meanwhile; what it still owed is neither done nor failed.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError("a scheduler needs Dask: pip install './lab[cluster]'") from None
    client = scheduler
    if isinstance(scheduler, str):
        try:
            client = Client(scheduler, timeout=connect_seconds)
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    futures: dict[Any, PoolTask] = {}
    try:
        for task in tasks:
            # Not pure: the same computation is asked for again on purpose.
            future = client.submit(
                work_apart, work, task, most_bytes, tuple(preload), pure=False, retries=0
            )
            futures[future] = task
        for future in as_completed(futures):
            task = futures.pop(future)
            yield from zip(task.items, _answers(future, task), strict=True)
    finally:
        client.cancel(list(futures))
        if client is not scheduler:
            client.close()


def _answers(future: Any, task: PoolTask) -> list[Any]:
    if future.status in ("cancelled", "lost"):
        raise OffcertError("the connection to the scheduler is lost; what came before is kept")
    error = future.exception()
    if error is None:
        answers: list[Any] = future.result()
        return answers
    return [Failure(f"the cluster gave up: {type(error).__name__}: {error}", 0.0)] * len(task.items)


def work_apart(
    work: Callable[[Any], Any], task: PoolTask, most_bytes: int, preload: tuple[str, ...]
) -> list[Any]:
    """Return an answer or a `Failure` for every item, from a pool in a program of its own.

    A Dask worker may have no children by `multiprocessing`, so it starts a program that may. The
    program stays for the next task that needs the same modules, and ends with the worker.
    """
    program = _idle_program(preload) or _Apart()
    answers = program.answers((work, task, most_bytes, preload))
    if len(answers) == len(task.items):
        with _lock:
            _idle.setdefault(preload, []).append(program)
        return answers
    failure = Failure(describe_death(program.end()), 0.0)
    return answers + [failure] * (len(task.items) - len(answers))


_idle: dict[tuple[str, ...], list[_Apart]] = {}
# A worker's threads share what is idle.
_lock = threading.Lock()


def _idle_program(preload: tuple[str, ...]) -> _Apart | None:
    with _lock:
        waiting = _idle.get(preload, [])
        while waiting:
            program = waiting.pop()
            if program.alive:
                return program
    return None


class _Apart:
    """A running `offcert_lab.cluster.apart`."""

    def __init__(self) -> None:
        reader, writer = os.pipe()
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "offcert_lab.cluster.apart", str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
            pass_fds=(writer,),
        )
        os.close(writer)
        self._reader = os.fdopen(reader, "rb")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def answers(self, request: tuple[Any, ...]) -> list[Any]:
        """Return the answers in the order of the items; too few if the program died."""
        assert self._process.stdin is not None
        answers: list[Any] = []
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            for _ in request[1].items:
                answers.append(pickle.load(self._reader))
        except (OSError, EOFError, pickle.UnpicklingError):
            pass
        return answers

    def end(self) -> int:
        """Return the exit code, after closing what is left."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._reader.close()
