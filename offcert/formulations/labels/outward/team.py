"""Several regions looked at together, each by an evaluator that a thread has to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import TypeVar

from offcert.formulations.labels.outward.evaluation import Evaluator
from offcert.formulations.labels.outward.model import CutProblem

Item = TypeVar("Item")
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
        self, function: Callable[[Sequence[Evaluator], Item], Result], items: Iterable[Item]
    ) -> list[Result]:
        """Return a function's result for each item, called with evaluators nobody else uses.

        If it raises for one of them, that is raised once nothing is going on any more.
        """
        if self._pool is None:
            return [function(self.evaluators, item) for item in items]
        free: SimpleQueue[list[Evaluator]] = SimpleQueue()
        for evaluators in self._all:
            free.put(evaluators)

        def work(item: Item) -> Result:
            evaluators = free.get()
            try:
                return function(evaluators, item)
            finally:
                free.put(evaluators)

        futures = [self._pool.submit(work, item) for item in items]
        wait(futures)
        return [future.result() for future in futures]
