"""Searches over what the executor gives up: least time within a limit, or least memory."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from offcert.core.compiled import FloatArray
from offcert.core.computations import Run
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.heuristics.rematerialisation.kernel import BITS, DONE, execute
from offcert.heuristics.rematerialisation.state import SIZE, ExecutorArrays, executor_arrays

# Powers of size, distance and cost by which the executor chooses the values to give up: those that
# are tried first, and all that are tried. Arbitrary.
POWERS = ((1.0, 1.0, 1.0), (1.0, 2.0, 1.5), (0.5, 2.0, 0.5), (0.0, 1.0, 0.0))
_GRID = ((0.5, 1.0), (0.0, 0.25, 0.5, 1.0, 2.0), (0.25, 0.5, 1.0, 1.5, 2.0, 3.0))
# Runs beside the first ones after which an attempt is given up: for each computation, and in total.
# Arbitrary.
_MOST_AGAIN, _MOST_IN_TOTAL = 12, 10_000
# The most that a step of the search adds to the scores of some items. Arbitrary.
_REACH = 3.0
# The chance that a step changes the powers as well. Arbitrary.
_TURNED = 0.3
# Attempts after which annealing begins anew; the part by which an attempt may be longer at first;
# the ticks of no attempt. Arbitrary but for the last.
_CYCLE = 400
_WORSE = 0.01
_LONGEST = 2**60

Powers = tuple[float, float, float]


@dataclass(frozen=True)
class FoundExecution:
    """An execution that recomputes, its bytes if nothing leaves the device, and its ticks."""

    execution: Execution
    memory: int
    time: int


OnFound = Callable[[FoundExecution], object]


@dataclass(frozen=True)
class _Guide:
    """The powers and weights that guided an attempt, and the ticks that it took."""

    ticks: int
    powers: Powers
    weights: FloatArray


class RematerialisationSearch:
    """Attempts to run one network within limits; a callback says in between whether to stop."""

    def __init__(
        self, network: Network, seed: int = 0, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.network = network
        # What a program holds without reading it an execution may give up all the same.
        self._free = Network((replace(c, holds=()) for c in network.computations), network.values)
        self.arrays = executor_arrays(network)
        self.stop = stop
        self._random = random.Random(seed)
        most = len(network) + min(_MOST_AGAIN * len(network), _MOST_IN_TOTAL)
        self._order, self._kept = np.zeros(most, np.int64), np.zeros(most, np.int64)
        self._runs = 0
        self._idle = np.zeros(self.arrays.items.shape[1])
        self._sizes = self.arrays.items[SIZE].astype(np.float64)
        self._log_sizes = np.log1p(self._sizes)

    def attempt(
        self, memory: int, longest: int, powers: Powers, weights: FloatArray | None = None
    ) -> FoundExecution | None:
        """Return the execution that the executor finds within a limit; None if it gets stuck."""
        time = self._ticks(memory, longest, powers, self._idle if weights is None else weights)
        return None if time is None else self._found()

    def _ticks(self, memory: int, longest: int, powers: Powers, weights: FloatArray) -> int | None:
        """Return the ticks of an attempt, or None if it does not get to the end."""
        end, self._runs, ticks = execute(
            self.arrays,
            len(self.network.values),
            memory,
            longest,
            weights + powers[0] * self._log_sizes,
            np.array(powers[1:]),
            self._order,
            self._kept,
        )
        return ticks if end == DONE else None

    def _found(self) -> FoundExecution:
        """Return the execution of the last attempt, or the one that discards what is not read."""
        runs = self._runs
        strategy = _strategy(self.arrays, self._order[:runs], self._kept[:runs])
        executions = [
            each.expand(self._free) for each in (strategy, strategy.without_unread(self._free))
        ]
        best = min(executions, key=lambda each: each.trace.peak_memory)
        return FoundExecution(best, best.trace.peak_memory, best.trace.compute_time)

    def least_time(self, memory: int, on_found: OnFound | None = None) -> FoundExecution | None:
        """Return the fastest execution within a limit that is found before somebody stops it."""
        best: FoundExecution | None = None

        def note(found: FoundExecution) -> None:
            nonlocal best
            best = found
            if on_found is not None:
                on_found(found)

        begin = self._first(memory, note)
        if begin is not None:
            self._anneal(memory, begin, note, math.inf)
        return best

    def _first(self, memory: int, note: OnFound) -> _Guide | None:
        """Try all powers; return the best ones."""
        guide: _Guide | None = None
        for powers in self._grid():
            if self.stop():
                break
            longest = _LONGEST if guide is None else guide.ticks - 1
            ticks = self._ticks(memory, longest, powers, self._idle)
            if ticks is not None:
                guide = _Guide(ticks, powers, self._idle)
                note(self._found())
        return guide

    def _anneal(self, memory: int, begin: _Guide, note: OnFound, most: float) -> _Guide:
        """Change scores at random, and keep what is not much longer; return the best.

        It ends after `most` attempts.
        """
        best = now = begin
        attempts = 0
        for changed in self._changes():
            if self.stop() or attempts >= most:
                break
            phase = attempts % _CYCLE / _CYCLE
            attempts += 1
            if phase == 0.0:
                now = best
            allowed = int(now.ticks * (1 + _WORSE * (1 - phase)))
            powers = self._turned(now.powers)
            ticks = self._ticks(memory, allowed, powers, now.weights + changed)
            if ticks is None:
                continue
            now = _Guide(ticks, powers, now.weights + changed)
            if ticks < best.ticks:
                best = now
                note(self._found())
        return best

    def least_memory(
        self, deadline: int | None = None, on_found: OnFound | None = None
    ) -> FoundExecution:
        """Return the execution of least memory that is found before somebody stops it.

        A deadline is at least the ticks of all computations. Each better one is passed on.
        """
        plain = Strategy.plain(self._free).expand(self._free)
        best = FoundExecution(plain, plain.trace.peak_memory, plain.trace.compute_time)
        longest = _LONGEST if deadline is None else deadline
        guide = _Guide(best.time, POWERS[0], self._idle)

        def note(found: FoundExecution) -> None:
            nonlocal best
            if found.time <= longest and found.memory < best.memory:
                best = found
                if on_found is not None:
                    on_found(found)

        least = max(self.network.own_memory)
        for powers in self._grid():
            low = least - 1
            # Where the best so far fails by a little, halving would only confirm it.
            memory = best.memory - max(1, (best.memory - low) // 64)
            while low < memory < best.memory and not self.stop():
                ticks = self._ticks(memory, longest, powers, self._idle)
                if ticks is None:
                    low = memory
                else:
                    guide = _Guide(ticks, powers, self._idle)
                    note(self._found())
                if low >= best.memory - max(1, best.memory // 256):
                    break
                memory = (low + best.memory) // 2
        step = max(1, best.memory // 64)
        while not self.stop() and best.memory > least:
            memory = max(least, best.memory - step)
            reached = self._within(memory, longest, guide, note)
            if reached is None:
                step = max(1, step // 2)
            else:
                guide, step = reached, min(2 * step, max(1, best.memory // 64))
        return best

    def _within(self, memory: int, longest: int, guide: _Guide, note: OnFound) -> _Guide | None:
        """Return powers and weights that lead to an execution within both limits, or None."""
        ticks = self._ticks(memory, _LONGEST, guide.powers, guide.weights)
        changes = self._changes()
        for _ in range(_CYCLE):
            if ticks is not None or self.stop():
                break
            # Nothing fits yet: any change may help.
            guide = _Guide(0, self._turned(guide.powers), guide.weights + next(changes))
            ticks = self._ticks(memory, _LONGEST, guide.powers, guide.weights)
        if ticks is None:
            return None
        note(self._found())
        found = _Guide(ticks, guide.powers, guide.weights)
        if ticks > longest:
            found = self._anneal(memory, found, note, _CYCLE)
        return found if found.ticks <= longest else None

    def _grid(self) -> Iterator[Powers]:
        """Yield powers, those that are good most often first."""
        grid = list(product(*_GRID))
        self._random.shuffle(grid)
        yield from POWERS
        yield from grid

    def _turned(self, powers: Powers) -> Powers:
        """Return powers near these, or now and then these."""
        if self._random.random() >= _TURNED:
            return powers
        size, far, cost = (
            max(0.0, power + self._random.choice((0.0, -0.2, 0.2))) for power in powers
        )
        return size, far, cost

    def _changes(self) -> Iterator[FloatArray]:
        """Yield random additions to scores: of few items, large ones first, or of a stretch."""
        items = len(self._idle)
        likely = np.cumsum(self._sizes + 1.0).tolist()
        while True:
            changed = np.zeros(items)
            if self._random.random() < 0.5:
                count = self._random.choice((1, 1, 2, 4))
                for item in self._random.choices(range(items), cum_weights=likely, k=count):
                    changed[item] = self._random.uniform(-_REACH, _REACH)
            else:
                first = self._random.randrange(items)
                length = self._random.randint(1, max(1, items // 8))
                changed[first : first + length] = self._random.uniform(-_REACH, _REACH)
            yield changed


def _strategy(arrays: ExecutorArrays, order: np.ndarray, kept: np.ndarray) -> Strategy:
    runs: list[Run] = []
    begin, members = arrays.makes
    for computation, mask in zip(order.tolist(), kept.tolist(), strict=True):
        items = members[begin[computation] : begin[computation + 1]].tolist()
        chosen = {item for place, item in enumerate(items) if place >= BITS or mask >> place & 1}
        runs.append(Run(computation, arrays.discarded(computation, chosen)))
    return Strategy(runs)


def least_time(
    network: Network,
    memory: int,
    *,
    seconds: float,
    seed: int = 0,
    target: int = 0,
    on_found: OnFound | None = None,
) -> FoundExecution | None:
    """Search for the fastest execution within a memory limit, if nothing leaves the device.

    It ends at `target` ticks, too. Each better one is passed on. None does not mean that there is
    none.
    """
    clock = _Clock(seconds, on_found, lambda found: found.time <= max(target, network.compute_time))
    return RematerialisationSearch(network, seed, clock.over).least_time(memory, clock.note)


def least_memory(
    network: Network,
    *,
    seconds: float,
    deadline: int | None = None,
    seed: int = 0,
    target: int = 0,
    on_found: OnFound | None = None,
) -> FoundExecution:
    """Search for the execution that takes least memory; the plain one if nothing better is found.

    It ends at `target` bytes, too. Each better one is passed on.
    """
    clock = _Clock(
        seconds, on_found, lambda found: found.memory <= max(target, *network.own_memory)
    )
    return RematerialisationSearch(network, seed, clock.over).least_memory(deadline, clock.note)


class _Clock:
    """Says when to stop: the time is over, or what was found is good enough."""

    def __init__(
        self, seconds: float, on_found: OnFound | None, enough: Callable[[FoundExecution], bool]
    ) -> None:
        self._end = time.monotonic() + seconds
        self._on_found, self._enough = on_found, enough
        self._reached = False

    def over(self) -> bool:
        return self._reached or time.monotonic() > self._end

    def note(self, found: FoundExecution) -> None:
        self._reached = self._enough(found)
        if self._on_found is not None:
            self._on_found(found)
