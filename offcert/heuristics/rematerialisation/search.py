"""Searches over what the executor gives up: least time within a limit, or least memory."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Run, Strategy
from offcert.heuristics.rematerialisation.arrays import ExecutorArrays, executor_arrays
from offcert.heuristics.rematerialisation.kernel import BITS, DONE, Floats, execute

# Powers of size, distance and cost by which the executor gives things up: what is tried first.
POWERS = (
    (1.0, 1.0, 1.0),
    (1.0, 0.5, 1.0),
    (1.0, 1.0, 0.5),
    (1.0, 2.0, 1.0),
    (1.0, 0.0, 1.0),
    (0.5, 1.0, 1.0),
    (0.0, 1.0, 0.0),
    (1.0, 1.0, 0.0),
    (0.5, 2.0, 0.5),
    (1.0, 0.25, 2.0),
)
# Runs beside the first ones, for each of them, after which an attempt is given up.
_MOST_AGAIN = 12
# What a step of the search adds to the scores of some items, at most.
_REACH = 3.0


@dataclass(frozen=True)
class Found:
    """An execution that recomputes.

    Attributes
    ----------
    execution : Execution
        Of the network.
    memory, time : int
        Bytes that it takes if nothing leaves the device, and ticks.
    """

    execution: Execution
    memory: int
    time: int


OnFound = Callable[[Found], object]


class RematerialisationSearch:
    """Attempts to run one network, and the best of them.

    Parameters
    ----------
    network : Network
        Of any size.
    seed : int
        Of random choices.
    stop : callable
        Asked between attempts.
    """

    def __init__(
        self, network: Network, seed: int = 0, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.network = network
        self.arrays = executor_arrays(network)
        self.stop = stop
        self._random = random.Random(seed)
        most = len(network) * (1 + _MOST_AGAIN)
        self._order, self._kept = np.zeros(most, np.int64), np.zeros(most, np.int64)
        self._idle = np.zeros(self.arrays.items.shape[1])

    def attempt(
        self, memory: int, longest: int, powers: tuple[float, ...], weights: Floats | None = None
    ) -> Found | None:
        """Return what the executor makes of a limit; None if it does not get to the end.

        Parameters
        ----------
        memory, longest : int
            Bytes and ticks.
        powers : tuple of float
            Of size, distance and cost.
        weights : float64 array, optional
            What is added to the score of each item.
        """
        arrays = self.arrays
        end, runs, _ = execute(
            arrays.network_arrays,
            len(self.network.values),
            memory,
            longest,
            self._idle if weights is None else weights,
            np.array(powers),
            self._order,
            self._kept,
        )
        if end != DONE:
            return None
        return self._found(_strategy(arrays, self._order[:runs], self._kept[:runs]))

    def _found(self, strategy: Strategy) -> Found:
        """Return the better one of a strategy and the one that discards what is not read."""
        executions = [
            each.expand(self.network) for each in (strategy, strategy.without_unread(self.network))
        ]
        best = min(executions, key=lambda each: each.trace.peak_memory)
        return Found(best, best.trace.peak_memory, best.trace.compute_time)

    def least_time(self, memory: int, on_found: OnFound | None = None) -> Found | None:
        """Return the fastest execution within a limit that is found before somebody stops it."""
        best: Found | None = None

        def better(found: Found | None) -> bool:
            nonlocal best
            if found is None or found.memory > memory:
                return False
            if best is not None and found.time >= best.time:
                return False
            best = found
            if on_found is not None:
                on_found(found)
            return True

        def longest() -> int:
            return 2**60 if best is None else best.time - 1

        self._descend(lambda *scores: better(self.attempt(memory, longest(), *scores)))
        return best

    def least_memory(self, deadline: int | None = None, on_found: OnFound | None = None) -> Found:
        """Return the execution of least memory that is found before somebody stops it.

        Parameters
        ----------
        deadline : int, optional
            Ticks, at least those of all computations.
        on_found : callable, optional
            Told of each better one.
        """
        plain = Strategy.plain(self.network).expand(self.network)
        best = Found(plain, plain.trace.peak_memory, plain.trace.compute_time)
        longest = 2**60 if deadline is None else deadline

        def better(found: Found | None) -> bool:
            nonlocal best
            if found is None or found.memory >= best.memory:
                return False
            best = found
            if on_found is not None:
                on_found(found)
            return True

        def lower(powers: tuple[float, ...], weights: Floats | None) -> bool:
            """Try a little less, or by halves if that succeeds."""
            improved, low = False, max(self.network.own_memory) - 1
            step = max(1, (best.memory - low) // 64)
            while best.memory - step > low and not self.stop():
                if not better(self.attempt(best.memory - step, longest, powers, weights)):
                    break
                improved, step = True, min(2 * step, max(1, (best.memory - low) // 2))
            while step > 1 and improved and not self.stop():
                step //= 2
                better(self.attempt(best.memory - step, longest, powers, weights))
            return improved or better(self.attempt(best.memory - 1, longest, powers, weights))

        self._descend(lower)
        return best

    def _descend(self, succeeds: Callable[[tuple[float, ...], Floats | None], bool]) -> None:
        """Try powers, then random changes of what worked last."""
        powers: tuple[float, ...] = POWERS[0]
        weights = self._idle
        for each in POWERS:
            if self.stop():
                return
            if succeeds(each, None):
                powers = each
        for changed in self._changes():
            if self.stop():
                return
            given = tuple(
                max(0.0, power + self._random.choice((0.0, 0.0, -0.2, 0.2))) for power in powers
            )
            if succeeds(given, weights + changed):
                powers, weights = given, weights + changed

    def _changes(self) -> Iterator[Floats]:
        """Yield what to add to scores: on few items, or on a stretch of consecutive ones."""
        items = len(self._idle)
        while True:
            changed = np.zeros(items)
            if self._random.random() < 0.5:
                for _ in range(self._random.choice((1, 1, 2, 4))):
                    changed[self._random.randrange(items)] = self._random.uniform(-_REACH, _REACH)
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
) -> Found | None:
    """Search for the fastest execution within a memory limit, if nothing leaves the device.

    Parameters
    ----------
    network : Network
        Of any size.
    memory : int
        Bytes.
    seconds : float
        Time limit.
    seed : int
        Of random choices.
    target : int
        Ticks at which to stop.
    on_found : callable, optional
        Told of each better one.

    Returns
    -------
    Found or None
        None if none was found, which does not mean that there is none.
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
) -> Found:
    """Search for the execution that takes least memory, if nothing leaves the device.

    Parameters
    ----------
    network : Network
        Of any size.
    seconds : float
        Time limit.
    deadline : int, optional
        Ticks, at least those of all computations.
    seed : int
        Of random choices.
    target : int
        Bytes at which to stop.
    on_found : callable, optional
        Told of each better one.

    Returns
    -------
    Found
        The plain execution if nothing better is found.
    """
    clock = _Clock(
        seconds, on_found, lambda found: found.memory <= max(target, *network.own_memory)
    )
    return RematerialisationSearch(network, seed, clock.over).least_memory(deadline, clock.note)


class _Clock:
    """Says when to stop: the time is over, or what was found is good enough."""

    def __init__(
        self, seconds: float, on_found: OnFound | None, enough: Callable[[Found], bool]
    ) -> None:
        self._end = time.monotonic() + seconds
        self._on_found, self._enough = on_found, enough
        self._reached = False

    def over(self) -> bool:
        return self._reached or time.monotonic() > self._end

    def note(self, found: Found) -> None:
        self._reached = self._enough(found)
        if self._on_found is not None:
            self._on_found(found)
