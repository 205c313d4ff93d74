"""Coolings with restarts, for annealers that improve something in batches."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Operations and gaps up to which a round has its full length. Arbitrary.
_SHORT = 1000


class OrderedAnnealer(ABC):
    """Improves an ordered schedule in batches, so that the caller can look at the clock.

    Parameters
    ----------
    seed : int
        Seed of the random numbers.

    Attributes
    ----------
    makespan : int
        Ticks of the best schedule so far.
    """

    makespan: int
    # The makespan of what the next step changes.
    _value: int

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def run(self, steps: int, hot: float, cold: float) -> bool:
        """Make `steps` steps, cooling from `hot` to `cold` ticks; return whether that helped."""
        before = self.makespan
        seed = int(self._random.integers(2**31))
        self._value, self.makespan = self._anneal(steps, hot, cold, seed)
        return self.makespan < before

    def restart(self) -> None:
        """Continue from the best."""
        self._return_to_best()
        self._value = self.makespan

    @abstractmethod
    def _anneal(self, steps: int, hot: float, cold: float, seed: int) -> tuple[int, int]:
        """Make the steps; return the present makespan and the best."""

    @abstractmethod
    def _return_to_best(self) -> None:
        """Make the best the present one."""

    @abstractmethod
    def schedule(self) -> Schedule:
        """Return the best schedule."""


@dataclass(frozen=True)
class Cooling:
    """How to cool.

    Attributes
    ----------
    rounds : int
        How many; the clock is looked at after each.
    steps : int
        Of a round, on short traces.
    hot : tuple of float
        Where coolings begin, as fractions of the makespan, in turn.
    factor : float
        Where they end, as a fraction of where they began.
    """

    rounds: int
    steps: int
    hot: tuple[float, ...]
    factor: float


def length_of_round(problem: Problem, steps: int) -> int:
    """Return how many steps a round has that has `steps` of them on a short trace.

    A step takes time in proportion to the trace, and a search looks at the clock only between
    rounds.
    """
    size = len(problem.trace) + len(problem.trace.gaps)
    return steps if size <= _SHORT else max(1, steps * _SHORT // size)


def coolings(
    annealer: OrderedAnnealer,
    problem: Problem,
    cooling: Cooling,
    *,
    deadline: float,
    target: int,
    patience: int,
    on_improvement: Callable[[Schedule], object],
) -> None:
    """Cool, restart from the best, and cool again.

    Parameters
    ----------
    annealer : OrderedAnnealer
        The annealer.
    problem : Problem
        The problem whose schedules it improves.
    cooling : Cooling
        How.
    deadline : float
        Of `time.monotonic`.
    target : int
        Stop when the makespan, in ticks, is at most this.
    patience : int
        Stop after this many coolings in a row without a better schedule.
    on_improvement : callable
        Called with every better schedule that a round ends with.
    """
    count, steps = cooling.rounds, length_of_round(problem, cooling.steps)
    fruitless = done = 0
    while fruitless < patience:
        fruitless += 1
        begin = annealer.makespan * cooling.hot[done % len(cooling.hot)]
        for round_ in range(count):
            high, low = (begin * cooling.factor ** ((round_ + ended) / count) for ended in (0, 1))
            if annealer.run(steps, high, low):
                fruitless = 0
                on_improvement(annealer.schedule())
            if annealer.makespan <= target or time.monotonic() >= deadline:
                return
        done += 1
        annealer.restart()
