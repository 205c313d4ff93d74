"""Coolings with restarts, for annealers that improve something in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from offcert.core.problem import Problem
from offcert.core.schedule import Schedule

# Operations and gaps of a trace up to which a round has its full length.
_SHORT = 1000


class Annealer(Protocol):
    """What `coolings` needs to know of an annealer."""

    makespan: int

    def run(self, steps: int, hot: float, cold: float) -> bool:
        """Make `steps` steps, cooling from `hot` to `cold` ticks; return whether that helped."""

    def restart(self) -> None:
        """Continue from the best."""

    def schedule(self) -> Schedule:
        """Return the best schedule."""


def length_of_round(problem: Problem, steps: int) -> int:
    """Return how many steps a round has, of as many on short traces.

    A step takes time in proportion to the trace, and only between rounds a search looks at the
    clock.
    """
    size = len(problem.trace) + len(problem.trace.gaps)
    return steps if size <= _SHORT else max(1, steps * _SHORT // size)


def coolings(
    annealer: Annealer,
    *,
    rounds: tuple[int, int],
    hot: Sequence[float],
    factor: float,
    deadline: float,
    target: int,
    patience: int,
    on_improvement: Callable[[Schedule], object],
) -> None:
    """Cool, restart from the best, and cool again.

    Parameters
    ----------
    annealer : Annealer
        What cools.
    rounds : (int, int)
        Rounds of a cooling, after each of which the clock is looked at, and steps of a round.
    hot : sequence of float
        Where coolings begin, as fractions of the makespan, in turn.
    factor : float
        Where they end, as a fraction of where they began.
    deadline : float
        Of `time.monotonic`.
    target : int
        Stop when the makespan, in ticks, is at most this.
    patience : int
        Stop after so many coolings in a row that brought nothing.
    on_improvement : callable
        Called with every better schedule that a round ends with.
    """
    count, steps = rounds
    fruitless = done = 0
    while fruitless < patience:
        fruitless += 1
        begin = annealer.makespan * hot[done % len(hot)]
        for round_ in range(count):
            high, low = (begin * factor ** ((round_ + ended) / count) for ended in (0, 1))
            if annealer.run(steps, high, low):
                fruitless = 0
                on_improvement(annealer.schedule())
            if annealer.makespan <= target or time.monotonic() >= deadline:
                return
        done += 1
        annealer.restart()
