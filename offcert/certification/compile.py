"""All kernels of the program, compiled once, in several processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from offcert.certification import placement_methods, registry  # noqa: F401 (rows say what to compile)
from offcert.certification.schedule_methods import warm_outward
from offcert.certification.warm import GROUPS as GROUPS
from offcert.certification.warm import compiling, compiling_process, noted_compilations, small
from offcert.core.compiled import ENTERED
from offcert.core.errors import OffcertError


@dataclass(frozen=True)
class CompiledGroup:
    """The outcome for one group of kernels."""

    name: str  # One of `GROUPS`
    # Kernels that had to be compiled, and those that were on disk already.
    compiled: int
    found: int
    cpu_seconds: float  # Of one core


@dataclass(frozen=True)
class Compilation:
    """The outcome of `compile_all`."""

    groups: tuple[CompiledGroup, ...]  # In the order in which they were finished
    # In total; starting processes and loading modules are part of it.
    cpu_seconds: float
    wall_seconds: float

    @property
    def compiled(self) -> int:
        """Kernels that had to be compiled."""
        return sum(group.compiled for group in self.groups)

    @property
    def found(self) -> int:
        """Kernels that were on disk already."""
        return sum(group.found for group in self.groups)


@compiling("verification")
def warm_verification() -> None:
    """Compile the kernels of `verify`; the answers do not matter here."""
    from offcert.proofs.kinds.labels import Ends, Heads, Pivot
    from offcert.verification.ends.check import ends_fault, heads_fault
    from offcert.verification.pivot.check import pivot_fault

    warm_outward()
    problem = small()
    ends_fault(problem, 2, Ends(head=7, tail=8, head_counted=(2,), tail_counted=(2,)))
    # As if head and tail took no time, so that there is something to search, on two levels.
    heads_fault(problem, 15, Heads(pivot=2, head=0, tail=0, levels=((), (2, 3)), spare=1))
    pivot_fault(problem, 15, Pivot(pivot=2, front_limit=15, back_limit=15))


def compile_all(
    workers: int = 2, progress: Callable[[CompiledGroup], None] | None = None
) -> Compilation:
    """Compile every kernel that is not on disk, for every type of argument that it is given.

    In so many processes; `progress` is told of every group that is done. Raises `OffcertError`,
    which ends with what it said last, if a process fails.
    """
    began = time.monotonic()
    waiting: SimpleQueue[str] = SimpleQueue()
    for name in GROUPS:
        waiting.put(name)
    groups: list[CompiledGroup] = []
    seconds: list[float] = []

    def work() -> None:
        spent = 0.0
        with _worker() as worker:
            with suppress(Empty):
                while True:
                    group, spent = _ask(worker, waiting.get_nowait())
                    groups.append(group)
                    if progress is not None:
                        progress(group)
            seconds.append(spent)

    count = max(1, min(workers, len(GROUPS)))
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(work) for _ in range(count)]:
            future.result()
    return Compilation(tuple(groups), sum(seconds), time.monotonic() - began)


@contextmanager
def _worker() -> Iterator[subprocess.Popen[str]]:
    """Start a process of its own, and end it."""
    with compiling_process(beside=False) as worker:
        try:
            yield worker
        except BaseException:
            worker.kill()
            raise
        assert worker.stdin is not None
        worker.stdin.close()


def _ask(worker: subprocess.Popen[str], name: str) -> tuple[CompiledGroup, float]:
    """Have a group compiled; return what was done and the seconds of a core since the start."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stderr is not None
    line = ""
    try:
        worker.stdin.write(f"{name}\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        pass
    if not line:
        last = worker.stderr.read().strip().splitlines()[-1:] or ["it said nothing"]
        raise OffcertError(f"compiling {name} failed: {last[0]}")
    document = json.loads(line)
    return CompiledGroup(**document["group"]), document["seconds"]


def _overloads() -> int:
    return sum(len(kernel.overloads) for kernel in ENTERED.values())


def compile_group(name: str) -> CompiledGroup:
    """Compile a group of kernels in this process, or load what is on disk.

    `name` is one of `GROUPS`, or names of functions in them, with commas between them.
    """
    if name in GROUPS:
        acts = GROUPS[name].acts
    else:
        known = {act.__name__: act for group in GROUPS.values() for act in group.acts}
        acts = [known[each] for each in name.split(",")]
    with noted_compilations() as noted:
        began, before = time.process_time(), _overloads()
        for act in acts:
            act()
        spent = time.process_time() - began
        return CompiledGroup(name, len(noted), _overloads() - before - len(noted), spent)


def main(lines: Sequence[str] | Any = sys.stdin) -> None:
    """Compile the groups that are named line by line, and say in JSON what was done."""
    for line in lines:
        group = compile_group(line.strip())
        # Who has asked may have ended; what is asked for is compiled all the same.
        with suppress(BrokenPipeError):
            print(json.dumps({"group": vars(group), "seconds": time.process_time()}), flush=True)


if __name__ == "__main__":
    main()
