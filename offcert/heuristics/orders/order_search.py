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
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.heuristics.orders.order_changes import Classes, OrderState, anneal
from offcert.heuristics.orders.ordered import (
    OrderedArrays,
    lacking,
    later_gaps,
    needed_again,
    ordered_orders,
    ordered_schedule,
)
from offcert.heuristics.orders.ordered_kernel import INFEASIBLE
from offcert.heuristics.orders.set_search import (
    Cooling,
    OrderedAnnealer,
    classes_of_equal_size,
    coolings,
)
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Tensors on one side of an exchange and on the other. Arbitrary.
FEW, MANY = 2, 3
# Combinations of tensors that are formed, and exchanges that are kept, at most. Arbitrary.
_MOST_COMBINATIONS = 20_000
_MOST_EXCHANGES = 100_000
# Sums that differ by more than the largest size over this are not exchanged. Arbitrary.
_COARSEST = 8
# Tensors smaller than the largest size over this are left out: they hardly change a sum. Arbitrary.
_FINEST = 2_000


@dataclass(frozen=True)
class Exchanges:
    """Exchanges of up to ``FEW + MANY`` classes, by the bytes by which the sum changes, unsigned.

    A row has the classes whose counts change, -1 in unused places, and by how much; with all signs
    reversed it is an exchange too.
    """

    classes: IntArray
    changes: IntArray
    differences: IntArray


def exchanges(sizes: Sequence[int], amounts: Sequence[int]) -> Exchanges:
    """Return exchanges between classes of equal tensors."""
    usable = [c for c, size in enumerate(sizes) if size * _FINEST > max(sizes)]
    few = _combinations(usable, sizes, amounts, FEW)
    many = _combinations(usable, sizes, amounts, MANY)
    sums = np.array([total for total, _ in many], dtype=np.int64)
    own = np.array([total for total, _ in few], dtype=np.int64)
    tolerance = max(sizes, default=0) // _COARSEST
    while tolerance > 0 and _pairs(own, sums, tolerance) > _MOST_EXCHANGES:
        tolerance //= 2
    found = []
    for total, taken in few:
        low, high = np.searchsorted(sums, [total - tolerance, total + tolerance + 1])
        for other, given in many[low:high][:_MOST_EXCHANGES]:
            if not set(taken) & set(given) and (taken or given):
                found.append((abs(total - other), taken, given))
    found.sort()
    return _table(found[:_MOST_EXCHANGES])


def _combinations(
    usable: Sequence[int], sizes: Sequence[int], amounts: Sequence[int], most: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the combinations of up to `most` tensors, as sorted pairs of a sum and classes.

    Where there are too many, only those of fewer tensors.
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    numbers = _numbers([amounts[c] for c in usable], most)
    for count in range(most + 1):
        if count > 1 and len(found) + numbers[count] > _MOST_COMBINATIONS:
            break
        found += (
            (sum(sizes[c] for c in chosen), chosen)
            for chosen in combinations_with_replacement(usable, count)
            if all(chosen.count(c) <= amounts[c] for c in chosen)
        )
    return sorted(found)


def _numbers(amounts: Sequence[int], most: int) -> list[int]:
    """Return how many combinations of 0, 1, …, `most` tensors the amounts of each class allow."""
    numbers = [1] + [0] * most
    for amount in amounts:
        numbers = [sum(numbers[max(0, k - amount) : k + 1]) for k in range(most + 1)]
    return numbers


def _pairs(own: IntArray, sums: IntArray, tolerance: int) -> int:
    low = np.searchsorted(sums, own - tolerance)
    high = np.searchsorted(sums, own + tolerance + 1)
    return int((high - low).sum())


def _table(found: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> Exchanges:
    classes = np.full((len(found), FEW + MANY), -1, dtype=np.int64)
    changes = np.zeros((len(found), FEW + MANY), dtype=np.int64)
    for row, (_, taken, given) in enumerate(found):
        for side, sign in ((taken, -1), (given, 1)):
            for c in dict.fromkeys(side):
                place = int((classes[row] >= 0).sum())
                classes[row, place] = c
                changes[row, place] = sign * side.count(c)
    differences = np.array([difference for difference, _, _ in found], dtype=np.int64)
    return Exchanges(classes, changes, differences)


_COOLING = Cooling(rounds=50, steps=20_000, hot=(0.0003, 0.001, 0.0001, 0.003), factor=1e-3)

Orders = tuple[Sequence[int], Sequence[int]]


class OrderAnnealer(OrderedAnnealer):
    """Improves a set and its orders; `makespan` is that of the best schedule so far, in ticks.

    Of a tensor with several gaps the widest is considered, and later ones with it. It starts from
    gaps in the orders in which they leave and come back, if these are possible, or from all in
    natural orders. A `MethodError` says that there is no ordered schedule to start from.
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
        self._state = OrderState(full[0], full[1], chosen)
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
    """Anneal with restarts until the time is over or the makespan is at most `target` ticks.

    It starts from set and orders of a schedule, if these make an ordered one, and ends after
    `patience` coolings in a row without a better one, too. The first schedule and every better one
    that a round ends with are passed on. A `MethodError` says that there is no ordered schedule to
    start from.
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
