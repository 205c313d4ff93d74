"""Compiled kernels: how they are grouped, compiled before a search or beside it, and counted.

Where a search waits for its kernels, its clock stands still meanwhile: limits are about searching.
Otherwise kernels that have not been compiled yet are left to a process in the
background (`Compiling`), which ends by itself once it has compiled what it was asked for, also
after the search has ended; the next search finds them on disk.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

from offcert.core.compiled import ENTERED
from offcert.core.kernel_cache import NotCompiledError
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True)
class KernelGroup:
    """Kernels that one process compiles: those that share inner kernels stand together."""

    seconds: int  # Of one core that compiling them takes, about
    # Beginnings of the names of modules whose kernels these are; the longest that fits says it.
    modules: tuple[str, ...]
    acts: list[Callable[[], None]] = field(default_factory=list)  # Functions that compile them


_LABELS = "offcert.formulations.labels"
_SEARCHES = "offcert.heuristics"
# In the order in which they are compiled.
GROUPS: dict[str, KernelGroup] = {
    "outward search": KernelGroup(10, (f"{_LABELS}.outward",)),
    "pivot program": KernelGroup(12, ("offcert.formulations.",)),
    "verification": KernelGroup(8, ("offcert.verification.",)),
    "annealing": KernelGroup(8, (f"{_SEARCHES}.",)),
    "matched heads and tails": KernelGroup(6, (f"{_LABELS}.ends",)),
    "plans": KernelGroup(
        14,
        (
            "",
            f"{_SEARCHES}.checkpoint.",
            f"{_SEARCHES}.evictions.",
            f"{_SEARCHES}.orders.ordered",
        ),
    ),
    "recomputation": KernelGroup(
        5, (f"{_SEARCHES}.checkpoint.persistent", f"{_SEARCHES}.rematerialisation.")
    ),
    "joint search": KernelGroup(14, (f"{_SEARCHES}.joint.",)),
    "addresses": KernelGroup(5, ("offcert.formulations.placement.", f"{_SEARCHES}.placement.")),
}


def compiling(group: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Return a decorator that makes a function a part of a group, and has it act once."""

    def register(act: Callable[[], None]) -> Callable[[], None]:
        once = cache(act)
        GROUPS[group].acts.append(once)
        return once

    return register


# The problems here are tiny. Any limit would end with the first kernel that has to be compiled, and
# the others would be compiled within the limits of a search.
NO_LIMIT = math.inf


def tiny() -> Problem:
    """Return a problem in which one tensor has to leave and return."""
    tensors = [Tensor("v", 1, (0, 2)), Tensor("w", 1, (1,), evictable=False)]
    trace = Trace([Operation(name, 1) for name in "abc"], tensors)
    return Problem("tiny", trace, Platform(1, Fraction(1)))


def small() -> Problem:
    """Return a problem of which a second level of tensors is searched."""
    trace = Trace(
        [Operation(name, 1) for name in "abcdef"],
        [Tensor("v", 2, (0, 5)), Tensor("w", 3, (1, 4)), Tensor("x", 2, (2,), evictable=False)],
    )
    return Problem("small", trace, Platform(4, Fraction(1)))


@compiling("plans")
def warm_plans() -> None:
    """Compile the simulators of plans, and of ordered ones, on either link."""
    from offcert.heuristics.evictions.rules import least_cover_plan
    from offcert.heuristics.orders.ordered import ordered_plan
    from offcert.questions.schedule.simulate import simulate

    simulate(tiny(), least_cover_plan(tiny()))
    # One tensor returns while the other leaves.
    trace = Trace(
        [Operation(name, 1) for name in "abcd"], [Tensor("v", 1, (0, 2)), Tensor("w", 1, (0, 3))]
    )
    duplex = Problem("duplex", trace, Platform(2, Fraction(1), Link.DUPLEX))
    simulate(duplex, ordered_plan(duplex, range(2)))


@contextmanager
def noted_compilations(
    tell: Callable[[str], None] = lambda kernel: None,
) -> Iterator[list[str]]:
    """Yield a list of the kernels that Python enters and that are compiled meanwhile.

    `tell` is told the name of each when its compilation begins.
    """
    from numba.core import event

    noted: list[str] = []

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            name = _name_of(event.data["dispatcher"])
            if name is not None:
                noted.append(name)
                tell(name)

        def on_end(self, event: Any) -> None:
            pass

    listener: Any = Listener()
    with event.install_listener("numba:compile", listener):
        yield noted


def _name_of(kernel: Any) -> str | None:
    """Return the name of a kernel that Python enters, or None of another."""
    return next((name for name, known in ENTERED.items() if known is kernel), None)


def group_of(kernel: str) -> tuple[str, int]:
    """Return the group to which a kernel belongs, and about how long that takes to compile."""
    beginnings = [
        (len(module), name)
        for name, group in GROUPS.items()
        for module in group.modules
        if kernel.startswith(module)
    ]
    _, name = max(beginnings)
    return name, GROUPS[name].seconds


# The environment variable that has searches wait for kernels instead, beside their time limits.
WAIT = "OFFCERT_COMPILE"


def waits_for_kernels() -> bool:
    """Return whether searches compile what they need first, and their limits do not count it."""
    return os.environ.get(WAIT) == "wait"


class Compiling:
    """Kernels that are compiled in another process; none at first.

    ``asked`` and ``finished`` are what `offcert.certification.compile.compile_group` is told.
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.finished: set[str] = set()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, missing: NotCompiledError) -> str:
        """Ask for kernels, unless somebody has; return the request as `finished` will name it."""
        asked = ",".join(missing.acts) or group_of(missing.kernel)[0]
        if asked in self.asked:
            return asked
        self.asked.add(asked)
        if self._process is None:
            self._process = compiling_process(beside=True)
            threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{asked}\n")
            self._process.stdin.flush()
        return asked

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.finished.add(json.loads(line)["group"]["name"])

    @property
    def busy(self) -> bool:
        """Whether something is still being compiled."""
        running = self._process is not None and self._process.poll() is None
        return running and self.finished != self.asked

    def close(self) -> None:
        """Ask for no more: the process ends once it has compiled what it was asked for."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()


def compiling_process(beside: bool) -> subprocess.Popen[str]:
    """Start a process that compiles what it is told, a line each; not a fork: we may have threads.

    Run `beside` this one, it says nothing of its errors, and goes on where this one, or its
    terminal, ends.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "offcert.certification.compile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if beside else subprocess.PIPE,
        text=True,
        start_new_session=beside,
    )
