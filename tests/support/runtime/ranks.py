"""Processes that train together: one program loads PyTorch, and forks itself once a rank."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed

Rank = Callable[[int, int, str, str], None]


def results_of_ranks(program: str, size: int, folder: Path) -> list[dict[str, Any]]:
    """Return what every rank of a program has left, a module that ends with `run_ranks(main)`."""
    process = subprocess.Popen(
        [sys.executable, "-m", program, str(size), str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=180)
    finally:
        # Ranks that wait for each other would outlive the program.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


def run_ranks(main: Rank) -> None:
    """Call `main` with rank, size, a file to meet at and one for the results, in a process each.

    It ends with `leave`. One that fails ends the others, which would wait for it.
    """
    # Every rank would load it, for `torch.distributed`.
    importlib.import_module("torch._dynamo")
    size, folder = int(sys.argv[1]), Path(sys.argv[2])
    fork = multiprocessing.get_context("fork")
    meeting = str(folder / "meeting")
    running = []
    for rank in range(size):
        process = fork.Process(target=main, args=(rank, size, meeting, str(folder / f"{rank}.pt")))
        process.start()
        running.append(process)
    failed = False
    while running and not failed:
        ended = wait([process.sentinel for process in running])
        for process in [each for each in running if each.sentinel in ended]:
            process.join()
            running.remove(process)
            failed = failed or process.exitcode != 0
    for process in running:
        process.terminate()
    sys.exit(failed)


def leave() -> NoReturn:
    """End the process of a rank, once all of them have come so far.

    PyTorch takes a group down while it holds the interpreter's lock, for which a thread of the
    group may wait: then neither goes on. That was seen where a model outlived its group.
    """
    torch.distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
