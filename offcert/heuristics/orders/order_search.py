"""Annealing over sets and both orders of ordered schedules, with an exact value for each.

For given orders of offloads and of prefetches the best ordered schedule is known exactly and costs
a microsecond (``ordered``). Annealing over claim sequences has to place every move among the
operations as well; this search leaves that to the evaluation, and draws exchanges of nearly equal
sums (``exchanges``). It finds, for instance, that a small tensor that is needed last comes back
first, because it fits into idle time of the link just after the turn.

`set_search` looks for the set alone. Networks repeat sizes, and among tensors of equal size whose
gaps are nested the outermost are the best to evict (``formulations.labels.pivot.model`` proves it).
So a set is a vector of counts, one per size. A step changes a few counts by one or two, which
reaches sums of sizes that no single exchange of tensors does; orders are the natural ones (§4.1 of
the offloading paper).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.heuristics.orders.order_changes import Classes, OrderState, anneal, exchanges
from offcert.heuristics.orders.ordered import (
    OrderedArrays,
    lacking,
    later_gaps,
    needed_again,
    ordered_orders,
    ordered_schedule,
)
from offcert.heuristics.orders.ordered_kernel import INFEASIBLE
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Operations and gaps up to which a round has its full length. Arbitrary.
_SHORT = 1000

Orders = tuple[Sequence[int], Sequence[int]]


class OrderAnnealer:
    """Improves a set and its orders in batches, so that the caller can look at the clock.

    The attribute `makespan` is that of the best schedule so far, in ticks. Of a tensor with several
    gaps the widest is considered, and later ones with it. It starts from gaps in the orders in
    which they leave and come back, if these are possible, or from all in natural orders. With
    `sets_only` orders stay natural, and later gaps are evicted only where it is not enough that all
    else is absent. A `MethodError` says that there is no ordered schedule to start from.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int,
        start: Orders | None = None,
        *,
        sets_only: bool = False,
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._problem, self._sets_only = problem, sets_only
        members = classes_of_equal_size(problem)
        everything = [gap for gaps in members for gap in gaps]
        later = later_gaps(problem.trace, everything)
        needed = needed_again(problem.trace, lacking(problem), everything, later)
        self._arrays = OrderedArrays(problem, later)
        self._everything = {*everything, *later}
        self._natural = ordered_orders(problem, self._everything)
        # They take longer to list than a short search of sets takes.
        listed = [] if sets_only else members
        table = exchanges(
            [problem.trace.gap_size(gaps[0]) for gaps in listed], [len(gaps) for gaps in listed]
        )
        self._classes = Classes(
            np.array(everything, dtype=np.int64),
            np.cumsum([0, *map(len, members)]),
            table.classes,
            table.changes,
            table.differences,
            np.array(sorted(later), dtype=np.int64),
            self._followed(later),
        )
        # Bytes that a tick moves: differences in bytes are compared with differences in ticks.
        platform = problem.platform
        self._rate = float(min(platform.rate(kind) for kind in Kind))
        self.makespan = INFEASIBLE
        if start is not None and self._is_possible(start):
            self._begin(start)
        if self.makespan == INFEASIBLE:
            self._begin(ordered_orders(problem, [*everything, *needed]))
        if not everything or self.makespan == INFEASIBLE:
            raise MethodError("there is no ordered schedule to start from")

    def _followed(self, later: dict[int, int]) -> np.ndarray:
        """Return, for each gap, the gap whose eviction it needs: itself, or an earlier one."""
        followed = np.arange(len(self._problem.trace.gaps), dtype=np.int64)
        for gap, first in later.items():
            followed[gap] = first
        return followed

    def _is_possible(self, start: Orders) -> bool:
        """Return whether a start evicts nothing but what is considered, and no later gap alone."""
        chosen = set(start[0])
        followed = self._classes.followed
        return chosen == set(start[1]) <= self._everything and all(
            int(followed[gap]) in chosen for gap in chosen
        )

    def _begin(self, start: Orders) -> None:
        chosen = np.zeros(len(self._problem.trace.gaps), dtype=np.bool_)
        chosen[np.array(start[0], dtype=np.int64)] = True
        full = [_among(natural, own) for natural, own in zip(self._natural, start, strict=True)]
        self._state = OrderState(full[0], full[1], chosen)
        self._best = self._state.copy()
        self.makespan = self._value = self._arrays.makespan(*start)

    def restart(self) -> None:
        """Continue from the best."""
        self._state = self._best.copy()
        self._value = self.makespan

    def run(self, steps: int, hot: float, cold: float) -> bool:
        """Make `steps` steps, cooling from `hot` to `cold` ticks; return whether that helped."""
        arrays, before = self._arrays, self.makespan
        self._value, self.makespan = anneal(
            arrays.keys,
            arrays.gaps,
            arrays.settings,
            self._classes,
            self._state,
            self._value,
            self._best,
            self.makespan,
            arrays.scratch(),
            (steps, int(self._random.integers(2**31)), self._sets_only),
            (hot, cold, self._rate),
        )
        return self.makespan < before

    def schedule(self) -> Schedule:
        """Return the schedule of the best set and orders."""
        chosen, followed = self._best.chosen, self._classes.followed
        orders = [
            [gap for gap in order.tolist() if chosen[gap] and chosen[followed[gap]]]
            for order in (self._best.offloads, self._best.prefetches)
        ]
        return ordered_schedule(self._problem, *orders)


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


@dataclass(frozen=True)
class CoolingSchedule:
    """How to cool: the rounds, after each of which the clock is looked at, and steps of one.

    Coolings begin at fractions of the makespan, `hot`, in turn, and end at a fraction `factor` of
    that. A search ends after `patience` of them in a row that brought nothing.
    """

    rounds: int
    steps: int
    hot: tuple[float, ...]
    factor: float
    patience: int


_OF_ORDERS = CoolingSchedule(50, 20_000, (0.0003, 0.001, 0.0001, 0.003), 1e-3, patience=4)
_OF_SETS = CoolingSchedule(10, 10_000, (0.01, 0.01, 0.001), 1e-4, patience=3)


def length_of_round(problem: Problem, steps: int) -> int:
    """Return how many steps a round has that has `steps` of them on a short trace.

    A step takes time in proportion to the trace, and a search looks at the clock only between
    rounds.
    """
    size = len(problem.trace) + len(problem.trace.gaps)
    return steps if size <= _SHORT else max(1, steps * _SHORT // size)


def order_search(
    problem: Problem,
    *,
    time_limit: float,
    seed: int = 0,
    target: int = 0,
    start: Schedule | None = None,
    sets_only: bool = False,
    patience: int | None = None,
    on_improvement: Callable[[Schedule], object],
) -> None:
    """Anneal with restarts until the time is over or the makespan is at most `target` ticks.

    It starts from set and orders of a schedule, if these make an ordered one; with `sets_only`, how
    many tensors of each size leave is all that changes, and orders are natural. It ends after
    `patience` coolings in a row without a better schedule, too. The first schedule and every better
    one that a round ends with are passed on. A `MethodError` says that there is no ordered schedule
    to start from.
    """
    deadline = time.monotonic() + time_limit
    if not problem.trace.gaps:
        return
    orders = None if start is None else _orders(start)
    annealer = OrderAnnealer(problem, seed, orders, sets_only=sets_only)
    on_improvement(annealer.schedule())
    cooling = _OF_SETS if sets_only else _OF_ORDERS
    count, steps = cooling.rounds, length_of_round(problem, cooling.steps)
    fruitless = done = 0
    while fruitless < (cooling.patience if patience is None else patience):
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


set_search = partial(order_search, sets_only=True)


def _orders(schedule: Schedule) -> Orders:
    """Return the gaps in the orders in which they leave and come back."""
    leave, back = (
        [item.gap for item in schedule.transfers if item.kind is kind]
        for kind in (Kind.OFFLOAD, Kind.PREFETCH)
    )
    # Those that leave again have no offload.
    return [*leave, *(gap for gap in back if gap not in set(leave))], back


def _among(natural: Sequence[int], own: Sequence[int]) -> np.ndarray:
    """Return the natural order, with the gaps of `own` put into their own order."""
    chosen, following = set(own), iter(own)
    order = [next(following) if gap in chosen else gap for gap in natural]
    return np.array(order, dtype=np.int64)
