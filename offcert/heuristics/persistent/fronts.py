"""Persistent checkpointing without discretising anything: fronts of bytes and ticks.

The least time of a subchain is a step function of the memory that it may use. So for each subchain
there is a list of points, each the least time at some number of bytes and above: what a subchain
takes follows from the lists of its parts, by shifting and adding step functions. The whole chain's
list says what every memory limit buys.
"""

from __future__ import annotations

import numpy as np

from offcert.core.errors import MethodError
from offcert.heuristics.persistent.subchains import KEEP_ALL, Integers, Subchains

# Points of all lists together, in which a hundred stages of a network have room.
MAX_POINTS = 20_000_000


class Fronts:
    """Fronts of all subchains.

    Parameters
    ----------
    chain : Subchains
        Of which.
    memory : int
        Bytes; what takes more is left out.
    max_points : int
        The most points of all lists together.

    Attributes
    ----------
    budget : int
        The memory.

    Raises
    ------
    MethodError
        If there are more points.
    """

    def __init__(self, chain: Subchains, memory: int, max_points: int = MAX_POINTS) -> None:
        self.chain, self.budget = chain, memory
        self._points = 0
        self._most = max_points
        self._sweeps = [chain.sweep(first) for first in range(len(chain))]
        self._fronts: dict[tuple[int, int], tuple[Integers, Integers, Integers]] = {}
        for length in range(len(chain)):
            for first in range(len(chain) - length):
                self._add(first, first + length)

    @property
    def front(self) -> list[tuple[int, int]]:
        """Bytes and ticks of the whole chain: the first increase, the second decrease."""
        memory, time, _ = self._fronts[0, len(self.chain) - 1]
        return list(zip(memory.tolist(), time.tolist(), strict=True))

    def choice(self, first: int, last: int, budget: int) -> int:
        """Return `KEEP_ALL`, or the stage whose input is stored next."""
        memory, _, choices = self._fronts[first, last]
        point = int(np.searchsorted(memory, budget, side="right")) - 1
        return int(choices[point])

    def kept(self, stage: int) -> int:
        """Return what a stage that keeps all takes from the budget of what follows it."""
        return int(self.chain.output[stage] + self.chain.beside[stage])

    def stored(self, stage: int) -> int:
        """Return what a stored input of a stage takes from the budget of what follows it."""
        return int(self.chain.output[stage])

    def _add(self, first: int, last: int) -> None:
        ways = [self._all_kept(first, last)]
        passed = 0
        for stored in range(first + 1, last + 1):
            passed += int(self.chain.forward[stored - 1])
            ways.append(self._split(first, last, stored, passed))
        choices = np.repeat(
            np.array([KEEP_ALL, *range(first + 1, last + 1)]), [len(way[0]) for way in ways]
        )
        memory = np.concatenate([way[0] for way in ways])
        time = np.concatenate([way[1] for way in ways])
        order = np.lexsort((time, memory))
        memory, time, choices = memory[order], time[order], choices[order]
        best = np.minimum.accumulate(time)
        lower = np.concatenate((np.ones(min(1, len(time)), bool), best[1:] < best[:-1]))
        lower &= memory <= self.budget
        self._fronts[first, last] = memory[lower], time[lower], choices[lower]
        self._points += int(lower.sum())
        if self._points > self._most:
            raise MethodError(
                f"persistent checkpointing needs more than {self._most} points at "
                f"{self.budget} bytes; it can be discretised"
            )

    def _all_kept(self, first: int, last: int) -> tuple[Integers, Integers]:
        chain = self.chain
        least = max(chain.keeping[first] + chain.gradient[last], chain.turning[first])
        own = chain.forward[first] + chain.backward[first]
        if first == last:
            return np.array([least]), np.array([own])
        memory, time, _ = self._fronts[first + 1, last]
        return np.maximum(memory + self.kept(first), least), time + own

    def _split(self, first: int, last: int, stored: int, passed: int) -> tuple[Integers, Integers]:
        ahead, ahead_time, _ = self._fronts[stored, last]
        behind, behind_time, _ = self._fronts[first, stored - 1]
        if not len(ahead) or not len(behind):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        least = self._sweeps[first][stored - first - 1] + self.chain.gradient[last]
        ahead = ahead + self.stored(first)
        least = max(least, ahead[0], behind[0])
        memory = np.unique(np.maximum(np.concatenate((ahead, behind)), least))
        time = passed + ahead_time[np.searchsorted(ahead, memory, side="right") - 1]
        return memory, time + behind_time[np.searchsorted(behind, memory, side="right") - 1]
