"""Optimal persistent checkpointing of heterogeneous chains, by a dynamic program over subchains.

The subchain from stage `i` to stage `j` begins with ``a_i`` on the device, and ends when ``B_i``
has run; ``d_{j+1}`` is there all the time, if it is not the last stage's, which appears with
``B_j``. Its bytes count ``a_i``, that gradient, and everything of its own; not what is stored
outside. By persistency ``a_i`` stays until ``B_i``. There are two ways to begin:

- ``F_i`` keeps everything (``F_all``). Then come the subchain from ``i + 1`` to ``j``, beside what
  stage `i` stored, and ``B_i``.
- ``F_i`` and those behind it, up to ``F_{k-1}``, keep their outputs only (``F_ck``, then ``F_∅``,
  which drops its input); ``a_k`` is stored. Then come the subchain from ``k`` to ``j`` beside
  ``a_i``, and the subchain from ``i`` to ``k - 1``, for which ``a_k`` is not needed any more.

Source: the combined paper's supplement, its ``C_A`` with no bandwidth; Beaumont, Eyraud-Dubois,
Herrmann, Joly, Shilova, *Optimal checkpointing for heterogeneous chains* (2019). Here bytes are
those of `offcert.core.checkpoint_chain.CheckpointChain.network`, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.compiled import IntArray, compiled
from offcert.core.computations import Run
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.strategy import Strategy

# The mark of a subchain in which everything is kept; other numbers are the stage whose input is
# stored next. By definition.
KEEP_ALL = -1


@dataclass(frozen=True)
class Subchains:
    """A chain as the arrays that the dynamic programs read; all in bytes or ticks."""

    # Ticks of ``F_i`` and ``B_i``.
    forward: IntArray
    backward: IntArray
    output: IntArray  # Bytes of ``a_i``; one more than there are stages.
    beside: IntArray  # Bytes that ``F_i`` stores beside its output, for ``B_i``, if it keeps all.
    # Bytes of ``d_{j+1}`` that are there while the subchain to `j` begins; 0 for the last stage.
    gradient: IntArray
    # Bytes while ``F_i`` runs and keeps all, without that gradient; and while ``B_i`` runs.
    keeping: IntArray
    turning: IntArray
    # Bytes while ``F_k`` runs and keeps its output only: that, its input and its workspace.
    passing: IntArray

    @classmethod
    def of(cls, chain: CheckpointChain) -> Subchains:
        """Return the arrays of a chain."""
        stages = len(chain)
        output, extra = np.array(chain.output, np.int64), np.array(chain.extra, np.int64)
        gradient = np.array(chain.gradient, np.int64)
        both = output[:-1] + output[1:]
        return cls(
            np.array(chain.forward, np.int64),
            np.array(chain.backward, np.int64),
            output,
            extra,
            np.where(np.arange(stages) < stages - 1, gradient[1:], 0),
            both + extra + np.array(chain.forward_workspace, np.int64),
            both + extra + gradient[:-1] + gradient[1:] + np.array(chain.backward_workspace),
            both + np.array(chain.forward_workspace, np.int64),
        )

    def __len__(self) -> int:
        """Return the number of stages."""
        return len(self.forward)

    def sweep(self, first: int) -> IntArray:
        """Return the bytes on the way from ``a_first`` to ``a_k``, without gradient.

        Entry `k - first - 1` is for `k`, up to the last stage's input.
        """
        beside = self.passing[first + 1 : -1] + self.output[first]
        return np.maximum.accumulate(np.concatenate((self.passing[first : first + 1], beside)))


def strategy_of(stages: int, decide: Fronts | Slots) -> Strategy:
    """Return the strategy of a chain with so many stages that some decisions make."""
    runs: list[Run | int] = []
    waiting: list[tuple[int, int, int] | int] = [(0, stages - 1, decide.budget)]
    while waiting:
        task = waiting.pop()
        if isinstance(task, int):
            runs.append(2 * stages - 1 - task)
            continue
        first, last, budget = task
        stored = decide.choice(first, last, budget)
        if stored == KEEP_ALL:
            runs.append(first)
            waiting.append(first)
            if first < last:
                waiting.append((first + 1, last, budget - decide.kept(first)))
            continue
        # F_ck and F_∅ discard what lies between; the values e_i come behind the outputs.
        runs += [Run(stage, (stages + 1 + stage,)) for stage in range(first, stored)]
        waiting.append((first, stored - 1, budget))
        waiting.append((stored, last, budget - decide.stored(first)))
    return Strategy(runs)


# Points of all lists together, at most: a hundred stages of a network have room. Arbitrary.
MAX_POINTS = 20_000_000


class Fronts:
    """Fronts of all subchains within some bytes, the budget; with more points a `MethodError`."""

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
    """Least times of all subchains, for each number of slots into which a memory is divided.

    The attribute `budget` is the slots of the whole memory, `time` the least ticks of the whole
    chain, or None if it does not fit.
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

    What is stored stays stored until its backward operation has run; nothing leaves the device. The
    memory is divided into slots; with None it is exact, if all fronts together have no more than
    `max_points`. With `S` slots and `L` stages it takes ``O(L³ S)`` steps.

    A `NoPlanError` says that no strategy fits; with slots, rounding may be the only reason. A
    `MethodError` says that there are fewer slots than one, or too many points.
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

    They are pairs of bytes and the least ticks with so many; bytes increase, ticks decrease. With
    more points than so many of all subchains together it raises a `MethodError`.
    """
    peak = chain.network().trace().peak_memory
    limit = peak if memory is None else min(memory, peak)
    return Fronts(Subchains.of(chain), limit, max_points).front


def persistent_least_memory(
    chain: CheckpointChain, deadline: int | None = None, max_points: int = MAX_POINTS
) -> Strategy:
    """Return the persistent strategy that takes least memory, within a deadline if there is one.

    A `NoPlanError` says that nothing meets the deadline, a `MethodError` that there are too many
    points.
    """
    fronts = Fronts(Subchains.of(chain), chain.network().trace().peak_memory, max_points)
    for memory, time in fronts.front:
        if deadline is None or time <= deadline:
            fronts.budget = memory
            return strategy_of(len(chain), fronts)
    raise NoPlanError(f"no strategy ends within {deadline} ticks")
