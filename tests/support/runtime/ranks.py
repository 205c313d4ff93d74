"""Processes that train together: one program loads PyTorch, and forks itself once a rank."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed


def results_of_ranks(
    programs: Sequence[str], size: int, folder: Path
) -> Callable[[str], list[dict[str, Any]]]:
    """Return what says what every rank of a program has left.

    A program is a module whose `main` takes rank, size, a file to meet at and one for the results,
    and ends with `leave`. One program that fails is a failure only where its results are asked for.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(size), str(folder), *programs],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=180 * len(programs))
    finally:
        # Ranks that wait for each other would outlive the program.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def results(program: str) -> list[dict[str, Any]]:
        assert (folder / program / "done").exists(), said
        return [torch.load(folder / program / f"{rank}.pt") for rank in range(size)]

    return results


def run_ranks(program: str, size: int, folder: Path) -> None:
    """Call the `main` of a program in a process each; one that fails ends the others."""
    main = importlib.import_module(program).main
    fork = multiprocessing.get_context("fork")
    folder.mkdir()
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
        process.join()
    if not failed:
        (folder / "done").touch()


def leave() -> NoReturn:
    """End the process of a rank, once all of them have come so far.

    PyTorch takes a group down while it holds the interpreter's lock, for which a thread of the
    group may wait: then neither goes on. That was seen where a model outlived its group.
    """
    torch.distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    # Every rank would load it, for `torch.distributed`.
    importlib.import_module("torch._dynamo")
    for name in sys.argv[3:]:
        run_ranks(name, int(sys.argv[1]), Path(sys.argv[2], name))
