"""Annealing over sets and both orders of ordered schedules, with an exact value for each.

For given orders of offloads and of prefetches the best ordered schedule is known exactly and costs
a microsecond (``ordered``). Annealing over claim sequences has to place every move among the
operations as well; this search leaves that to the evaluation, and draws exchanges of nearly equal
sums (``exchanges``). It finds, for instance, that a small tensor that is needed last comes back
first, because it fits into idle time of the link just after the turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from offcert.core.errors import MethodError
from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.heuristics.cooling import Cooling, OrderedAnnealer, coolings
from offcert.heuristics.exchanges import exchanges
from offcert.heuristics.order_moves import Classes, State, anneal
from offcert.heuristics.ordered import OrderedArrays, ordered_orders, ordered_schedule
from offcert.heuristics.ordered_kernel import INFEASIBLE
from offcert.heuristics.returning import lacking, later_gaps, needed_again
from offcert.heuristics.set_search import classes_of_equal_size

_COOLING = Cooling(rounds=50, steps=20_000, hot=(0.0003, 0.001, 0.0001, 0.003), factor=1e-3)

Orders = tuple[Sequence[int], Sequence[int]]


class OrderAnnealer(OrderedAnnealer):
    """Improves a set and its orders.

    Parameters
    ----------
    problem : Problem
        Any trace; of a tensor with several gaps the widest is considered, and later ones with it.
    seed : int
        Of the random numbers.
    start : pair of sequence of int, optional
        Gaps in the orders in which they leave and come back; by default all, in natural orders.
        Another one that is not possible is not taken.

    Attributes
    ----------
    makespan : int
        Of the best schedule so far, in ticks.

    Raises
    ------
    MethodError
        If nothing can be evicted, or there is no ordered schedule to start from.
    """

    def __init__(self, problem: Problem, seed: int, start: Orders | None = None) -> None:
        super().__init__(seed)
        self._problem = problem
        members = classes_of_equal_size(problem)
        everything = [gap for gaps in members for gap in gaps]
        later = later_gaps(problem.trace, everything)
        needed = needed_again(problem.trace, lacking(problem), everything, later)
        self._arrays = OrderedArrays(problem, later)
        self._everything = {*everything, *later}
        self._natural = ordered_orders(problem, self._everything)
        table = exchanges(
            [problem.trace.gap_size(gaps[0]) for gaps in members], [len(gaps) for gaps in members]
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
        self._state = State(full[0], full[1], chosen)
        self._best = self._state.copy()
        self.makespan = self._value = self._arrays.makespan(*start)

    def _return_to_best(self) -> None:
        self._state = self._best.copy()

    def _anneal(self, steps: int, hot: float, cold: float, seed: int) -> tuple[int, int]:
        arrays = self._arrays
        return anneal(
            arrays.keys,
            arrays.gaps,
            arrays.settings,
            self._classes,
            self._state,
            self._value,
            self._best,
            self.makespan,
            arrays.scratch(),
            (steps, seed),
            (hot, cold, self._rate),
        )

    def schedule(self) -> Schedule:
        """Return the schedule of the best set and orders."""
        chosen, followed = self._best.chosen, self._classes.followed
        orders = [
            [gap for gap in order.tolist() if chosen[gap] and chosen[followed[gap]]]
            for order in (self._best.offloads, self._best.prefetches)
        ]
        return ordered_schedule(self._problem, *orders)


def order_search(
    problem: Problem,
    *,
    time_limit: float,
    seed: int = 0,
    target: int = 0,
    start: Schedule | None = None,
    patience: int = 4,
    on_improvement: Callable[[Schedule], object],
) -> None:
    """Anneal with restarts until the time is over or `target` is met.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    time_limit : float
        Seconds.
    seed : int
        Of the random numbers.
    target : int
        Stop when the makespan, in ticks, is at most this.
    start : Schedule, optional
        Whose set and orders to start from, if they make an ordered schedule.
    patience : int
        Stop after this many coolings in a row without a better schedule.
    on_improvement : callable
        Called with the first schedule and every better one that a round ends with.

    Raises
    ------
    MethodError
        If there is no ordered schedule to start from.
    """
    deadline = time.monotonic() + time_limit
    if not problem.trace.gaps:
        return
    annealer = OrderAnnealer(problem, seed, None if start is None else _orders(start))
    on_improvement(annealer.schedule())
    coolings(
        annealer,
        problem,
        _COOLING,
        deadline=deadline,
        target=target,
        patience=patience,
        on_improvement=on_improvement,
    )


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
