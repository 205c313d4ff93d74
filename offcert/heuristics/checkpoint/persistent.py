"""Optimal persistent checkpointing of heterogeneous chains: the functions to call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.compiled import IntArray, compiled
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.strategy import Strategy
from offcert.heuristics.checkpoint.subchains import KEEP_ALL, Subchains, strategy_of

# Points of all lists together, at most: a hundred stages of a network have room. Arbitrary.
MAX_POINTS = 20_000_000


class Fronts:
    """Fronts of all subchains.

    Parameters
    ----------
    chain : Subchains
        The chain.
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
        self._fronts: dict[tuple[int, int], tuple[IntArray, IntArray, IntArray]] = {}
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
        """Return the bytes that a stage which keeps all leaves less to the stages behind it."""
        return int(self.chain.output[stage] + self.chain.beside[stage])

    def stored(self, stage: int) -> int:
        """Return the bytes that a stage's stored input leaves less to the stages behind it."""
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

    def _all_kept(self, first: int, last: int) -> tuple[IntArray, IntArray]:
        chain = self.chain
        least = max(chain.keeping[first] + chain.gradient[last], chain.turning[first])
        own = chain.forward[first] + chain.backward[first]
        if first == last:
            return np.array([least]), np.array([own])
        memory, time, _ = self._fronts[first + 1, last]
        return np.maximum(memory + self.kept(first), least), time + own

    def _split(self, first: int, last: int, stored: int, passed: int) -> tuple[IntArray, IntArray]:
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


# A time that never comes. By definition.
NEVER = 2**62


class Slots:
    """Least times of all subchains, for each number of slots.

    Parameters
    ----------
    chain : Subchains
        The chain.
    memory : int
        Bytes.
    slots : int
        How many the memory is divided into; fewer if it has fewer bytes.

    Attributes
    ----------
    budget : int
        Slots of the whole memory.
    time : int or None
        The least ticks of the whole chain, or None if it does not fit.
    """

    def __init__(self, chain: Subchains, memory: int, slots: int) -> None:
        self.chain = chain
        self._unit = max(1, -(-memory // slots))
        self.budget = memory // self._unit
        sweeps = np.zeros((len(chain), len(chain)), np.int64)
        for first in range(len(chain)):
            row = chain.sweep(first)
            sweeps[first, first : first + len(row)] = row
        self._kept = self._rounded(chain.output[:-1] + chain.beside)
        self._stored = self._rounded(chain.output)
        times, self._choices = fill(
            chain.forward,
            chain.backward,
            self._kept,
            self._stored,
            chain.gradient,
            chain.keeping,
            chain.turning,
            sweeps,
            self._unit,
            self.budget,
        )
        least = int(times[0, len(chain) - 1, self.budget])
        self.time = None if least >= NEVER else least

    def _rounded(self, sizes: IntArray) -> IntArray:
        return np.ascontiguousarray(-(-sizes // self._unit))

    def choice(self, first: int, last: int, budget: int) -> int:
        """Return `KEEP_ALL`, or the stage whose input is stored next."""
        return int(self._choices[first, last, budget])

    def kept(self, stage: int) -> int:
        """Return the slots that a stage which keeps all leaves less to the stages behind it."""
        return int(self._kept[stage])

    def stored(self, stage: int) -> int:
        """Return the slots that a stage's stored input leaves less to the stages behind it."""
        return int(self._stored[stage])


@compiled
def fill(
    forward: IntArray,
    backward: IntArray,
    kept: IntArray,
    stored: IntArray,
    gradient: IntArray,
    keeping: IntArray,
    turning: IntArray,
    sweeps: IntArray,
    unit: int,
    slots: int,
) -> tuple[IntArray, NDArray[np.int32]]:
    """Return the least ticks of every subchain with every number of slots, and how it begins."""
    stages = len(forward)
    times = np.full((stages, stages, slots + 1), NEVER, np.int64)
    choices = np.full((stages, stages, slots + 1), KEEP_ALL, np.int32)
    for length in range(stages):
        for first in range(stages - length):
            last = first + length
            row, choice = times[first, last], choices[first, last]
            least = max(keeping[first] + gradient[last], turning[first])
            begin = max(-(-least // unit), kept[first] if first < last else 0)
            own = forward[first] + backward[first]
            for slot in range(begin, slots + 1):
                if first == last:
                    row[slot] = own
                elif times[first + 1, last, slot - kept[first]] < NEVER:
                    row[slot] = own + times[first + 1, last, slot - kept[first]]
            passed = 0
            for split in range(first + 1, last + 1):
                passed += forward[split - 1]
                least = sweeps[first, split - 1] + gradient[last]
                shift = stored[first]
                ahead, behind = times[split, last], times[first, split - 1]
                for slot in range(max(-(-least // unit), shift), slots + 1):
                    if ahead[slot - shift] < NEVER and behind[slot] < NEVER:
                        time = passed + ahead[slot - shift] + behind[slot]
                        if time < row[slot]:
                            row[slot] = time
                            choice[slot] = split
    return times, choices


def persistent(
    chain: CheckpointChain,
    memory: int,
    slots: int | None = 500,
    max_points: int = MAX_POINTS,
) -> Strategy:
    """Return the persistent strategy of a chain that takes least time within a memory limit.

    What is stored stays stored until its backward operation has run; nothing leaves the device.

    Parameters
    ----------
    chain : CheckpointChain
        The chain.
    memory : int
        Bytes.
    slots : int or None
        Into how many slots the memory is divided; None for none, which is exact.
    max_points : int
        Without slots, the most points of all fronts together.

    Returns
    -------
    Strategy
        With the `chain.network()`.

    Raises
    ------
    NoPlanError
        If no strategy fits; with slots, rounding may be the only reason.
    MethodError
        If there are fewer slots than one, or too many points.

    Notes
    -----
    Source: the combined paper's supplement with no bandwidth (``C_A``); see `subchains`. With `S`
    slots and `L` stages it takes ``O(L³ S)`` steps.
    """
    if slots is not None and slots < 1:
        raise MethodError(f"persistent checkpointing needs at least 1 slot, not {slots}")
    arrays = Subchains.of(chain)
    if slots is None:
        fronts = Fronts(arrays, memory, max_points)
        if not fronts.front:
            raise NoPlanError(f"no persistent strategy fits into {memory} bytes")
        return strategy_of(len(chain), fronts)
    found = Slots(arrays, memory, slots)
    if found.time is None:
        raise NoPlanError(
            f"persistent checkpointing found no strategy for {memory} bytes at {slots} slots; "
            "rounding sizes up may be the only reason"
        )
    return strategy_of(len(chain), found)


def persistent_front(
    chain: CheckpointChain, memory: int | None = None, max_points: int = MAX_POINTS
) -> list[tuple[int, int]]:
    """Return the least ticks within every memory limit, of persistent strategies without moves.

    Parameters
    ----------
    chain : CheckpointChain
        The chain.
    memory : int, optional
        Bytes; what takes more is left out.
    max_points : int
        The most points of the fronts of all subchains together.

    Returns
    -------
    list of (int, int)
        Bytes and the least ticks with so many; bytes increase, ticks decrease.

    Raises
    ------
    MethodError
        If there are too many points.
    """
    peak = chain.network().trace().peak_memory
    limit = peak if memory is None else min(memory, peak)
    return Fronts(Subchains.of(chain), limit, max_points).front


def persistent_least_memory(
    chain: CheckpointChain, deadline: int | None = None, max_points: int = MAX_POINTS
) -> Strategy:
    """Return the persistent strategy that takes least memory, within a deadline if there is one.

    Parameters
    ----------
    chain : CheckpointChain
        The chain.
    deadline : int, optional
        The most ticks.
    max_points : int
        The most points of the fronts of all subchains together.

    Raises
    ------
    NoPlanError
        If nothing meets the deadline.
    MethodError
        If there are too many points.
    """
    fronts = Fronts(Subchains.of(chain), chain.network().trace().peak_memory, max_points)
    for memory, time in fronts.front:
        if deadline is None or time <= deadline:
            fronts.budget = memory
            return strategy_of(len(chain), fronts)
    raise NoPlanError(f"no strategy ends within {deadline} ticks")
