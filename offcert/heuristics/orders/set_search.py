"""Annealing over how many tensors of each size are evicted, in ordered schedules.

Networks repeat sizes, and among tensors of equal size whose gaps are nested the outermost are the
best to evict (``formulations.labels.pivot.model`` proves it). So a set is a vector of counts, one
per size. A step changes a few counts by one or two, which reaches sums of sizes that no single
exchange of tensors does. Each set is valued by the ordered schedule in natural orders (§4.1 of the
offloading paper); annealing over claim sequences (``annealing``) then finds better orders.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined
from offcert.core.errors import MethodError
from offcert.heuristics.orders.ordered import (
    OrderedArrays,
    lacking,
    later_gaps,
    needed_again,
    ordered_orders,
    ordered_schedule,
)
from offcert.heuristics.orders.ordered_kernel import INFEASIBLE, evaluate_ordered
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Operations and gaps up to which a round has its full length. Arbitrary.
_SHORT = 1000


class OrderedAnnealer(ABC):
    """Improves an ordered schedule in batches, so that the caller can look at the clock.

    The attribute `makespan` is that of the best schedule so far, in ticks.
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
    """How to cool: the rounds, after each of which the clock is looked at, and steps of one.

    Coolings begin at fractions of the makespan, `hot`, in turn, and end at a fraction `factor` of
    that.
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
    """Cool, restart from the best, and cool again, until a `deadline` of ``time.monotonic``.

    It ends, too, when the makespan is at most `target` ticks, or after `patience` coolings in a row
    without a better schedule. Every better one that a round ends with is passed on.
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


_COOLING = Cooling(rounds=10, steps=10_000, hot=(0.01, 0.01, 0.001), factor=1e-4)


class SetAnnealer(OrderedAnnealer):
    """Improves a set of evicted gaps; `makespan` is that of the best ordered schedule, in ticks.

    Of a tensor with several gaps the widest is considered, and later ones with it where it is not
    enough that everything else is absent. A `MethodError` says that nothing can be evicted, or
    evicting everything gives no ordered schedule to start from.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(seed)
        self._problem = problem
        classes = classes_of_equal_size(problem)
        self._sizes = np.array([len(members) for members in classes], dtype=np.int64)
        place = {gap: (c, r) for c, gaps in enumerate(classes) for r, gap in enumerate(gaps)}
        later = later_gaps(problem.trace, place)
        again = needed_again(problem.trace, lacking(problem), place, later)
        self._arrays = OrderedArrays(problem, again)
        place |= {gap: place[later[gap]] for gap in again}
        orders = ordered_orders(problem, place)
        self._orders = tuple(np.array(order, dtype=np.int64) for order in orders)
        self._places = np.zeros((len(problem.trace.gaps), 2), dtype=np.int64)
        for gap, where in place.items():
            self._places[gap] = where
        self._counts = self._sizes.copy()
        self.best = self._counts.copy()
        self.makespan = self._value = self._arrays.makespan(*orders)
        if not place or self.makespan == INFEASIBLE:
            raise MethodError("there is no ordered schedule that evicts everything to start from")

    def _return_to_best(self) -> None:
        self._counts[:] = self.best

    def _anneal(self, steps: int, hot: float, cold: float, seed: int) -> tuple[int, int]:
        arrays = self._arrays
        return _anneal(
            arrays.keys,
            arrays.gaps,
            arrays.settings,
            self._orders[0],
            self._orders[1],
            self._places,
            self._sizes,
            self._counts,
            self._value,
            self.best,
            self.makespan,
            arrays.scratch(),
            steps,
            hot,
            cold,
            seed,
        )

    def schedule(self) -> Schedule:
        """Return the schedule of the best set."""
        gaps = [
            gap
            for gap in self._orders[0].tolist()
            if self._places[gap, 1] < self.best[self._places[gap, 0]]
        ]
        return ordered_schedule(self._problem, *ordered_orders(self._problem, gaps))


def set_search(
    problem: Problem,
    *,
    time_limit: float,
    seed: int = 0,
    target: int = 0,
    patience: int = 3,
    on_improvement: Callable[[Schedule], object],
) -> None:
    """Anneal with restarts until the time is over or the makespan is at most `target` ticks.

    It ends after `patience` coolings in a row without a better schedule, too. Every better one that
    a round ends with is passed on. A `MethodError` says that evicting everything gives no ordered
    schedule to start from.
    """
    deadline = time.monotonic() + time_limit
    if not problem.trace.gaps:
        return
    coolings(
        SetAnnealer(problem, seed),
        problem,
        _COOLING,
        deadline=deadline,
        target=target,
        patience=patience,
        on_improvement=on_improvement,
    )


def classes_of_equal_size(problem: Problem) -> list[list[int]]:
    """Return one gap a tensor, in classes of equal size, outermost first."""
    gaps = problem.trace.gaps
    widest: dict[int, int] = {}
    for index, gap in enumerate(gaps):
        known = widest.get(gap.tensor)
        if known is None or gap.after - gap.before > gaps[known].after - gaps[known].before:
            widest[gap.tensor] = index
    classes: dict[int, list[int]] = defaultdict(list)
    for index in sorted(widest.values(), key=lambda i: (gaps[i].before, -gaps[i].after, i)):
        classes[problem.trace.gap_size(index)].append(index)
    return list(classes.values())


@inlined
def _select(order: IntArray, places: IntArray, counts: IntArray, chosen: IntArray) -> int:
    count = 0
    for gap in order:
        if places[gap, 1] < counts[places[gap, 0]]:
            chosen[count] = gap
            count += 1
    return count


@inlined
def _copy(to: IntArray, of: IntArray) -> None:
    # Numba would compile a second's worth of checks for an assignment to a slice.
    for index in range(len(of)):
        to[index] = of[index]


@compiled
def _anneal(
    keys: IntArray,
    gaps: IntArray,
    settings: IntArray,
    offloads: IntArray,
    prefetches: IntArray,
    places: IntArray,
    sizes: IntArray,
    counts: IntArray,
    value: int,
    best: IntArray,
    best_value: int,
    scratch: IntArray,
    steps: int,
    hot: float,
    cold: float,
    seed: int,
) -> tuple[int, int]:
    """Anneal `counts` in place; return the present and the best makespan."""
    np.random.seed(seed)
    leaving, returning = np.empty_like(offloads), np.empty_like(prefetches)
    new = counts.copy()
    temperature = hot
    cooling = (cold / hot) ** (1.0 / steps)
    for _ in range(steps):
        temperature *= cooling
        _copy(new, counts)
        for _ in range(np.random.randint(1, 5)):
            c = np.random.randint(len(sizes))
            change = np.random.randint(1, 3 if sizes[c] > 2 else 2)
            if np.random.random() < 0.5:
                change = -change
            new[c] = max(0, min(sizes[c], new[c] + change))
        count = _select(offloads, places, new, leaving)
        _select(prefetches, places, new, returning)
        found = evaluate_ordered(keys, gaps, settings, leaving[:count], returning[:count], scratch)
        if found < 0:
            continue
        if found > value and np.random.random() >= np.exp((value - found) / temperature):
            continue
        _copy(counts, new)
        value = found
        if value < best_value:
            best_value = value
            _copy(best, counts)
    return value, best_value
