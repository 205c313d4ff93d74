"""The order of regions: that whose schedules may be shortest, and now and then a ripe one.

A region is ripe when it is a single set and a bound on its length is known: to follow it to the
ends of both sides may give a schedule as short as that. If the shortest region always came next,
all regions would be examined before any is followed. A better schedule, found soon, makes all
regions after it quicker to refute.

A `Team` looks at several regions together, each with an evaluator that a thread has to itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from offcert.formulations.labels.outward.evaluation import Evaluator
from offcert.formulations.labels.outward.model import CutProblem

Task = TypeVar("Task")
Result = TypeVar("Result")


class Team:
    """Evaluators for threads, which do what takes time without holding each other up.

    Parameters
    ----------
    pivots : sequence of CutProblem
        The same operation, with ever smaller tensors counted.
    pause : callable
        Called from time to time, by any of the threads; may raise.
    workers : int
        Threads.

    Attributes
    ----------
    evaluators : list of Evaluator
        One for each of the pivots, for use while no others are at work.
    """

    def __init__(
        self, pivots: Sequence[CutProblem], pause: Callable[[], None], workers: int
    ) -> None:
        self._all = [[Evaluator(pivot, pause) for pivot in pivots] for _ in range(max(1, workers))]
        self.evaluators = self._all[0]
        # Threads that stay: beginning new ones for every few regions takes a seventh of the time.
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None

    @property
    def labels(self) -> int:
        """Labels stored so far."""
        return sum(evaluator.labels for each in self._all for evaluator in each)

    def each(
        self, function: Callable[[Sequence[Evaluator], Task], Result], items: Iterable[Task]
    ) -> list[Result]:
        """Return a function's result for each item, called with evaluators nobody else uses.

        If it raises for one of them, that is raised once nothing is going on any more.
        """
        if self._pool is None:
            return [function(self.evaluators, item) for item in items]
        free: SimpleQueue[list[Evaluator]] = SimpleQueue()
        for evaluators in self._all:
            free.put(evaluators)

        def work(item: Task) -> Result:
            evaluators = free.get()
            try:
                return function(evaluators, item)
            finally:
                free.put(evaluators)

        futures = [self._pool.submit(work, item) for item in items]
        wait(futures)
        return [future.result() for future in futures]


class HasLength(Protocol):
    """An item of an agenda."""

    length: int


Item = TypeVar("Item", bound=HasLength)

# Regions between two turns of the ripe ones: a single set that gives a better schedule early makes
# the rest quicker to refute. Arbitrary.
_TURN = 8


@dataclass(eq=False)
class _Entry(Generic[Item]):
    """An item on the agenda, until it is taken from either heap."""

    item: Item
    taken: bool = False


class Agenda(Generic[Item]):
    """Items with a length, the shortest first."""

    def __init__(self) -> None:
        self._all: list[tuple[int, int, _Entry[Item]]] = []
        self._ripe: list[tuple[int, int, _Entry[Item]]] = []
        self._pushed = 0
        self._times = 0

    def push(self, item: Item, *, ripe: bool = False) -> None:
        """Put an item on the agenda; its length must not change until it is taken."""
        self._pushed += 1
        entry = item.length, self._pushed, _Entry(item)
        heapq.heappush(self._all, entry)
        if ripe:
            heapq.heappush(self._ripe, entry)

    def least(self, otherwise: int) -> int:
        """Return the length of the shortest item, or something else if there is none."""
        _drop_taken(self._all)
        return self._all[0][0] if self._all else otherwise

    def take(self, most: int) -> list[Item]:
        """Take the items whose turn it is: so many, or all that there are."""
        items: list[Item] = []
        while len(items) < most:
            self._times += 1
            _drop_taken(self._ripe)
            _drop_taken(self._all)
            heap = self._ripe if self._ripe and self._times % _TURN == 0 else self._all
            if not heap:
                break
            entry = heapq.heappop(heap)[2]
            entry.taken = True
            items.append(entry.item)
        return items


def _drop_taken(heap: list[tuple[int, int, _Entry[Item]]]) -> None:
    while heap and heap[0][2].taken:
        heapq.heappop(heap)
