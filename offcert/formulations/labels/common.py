"""Common parts of all searches over labels: their limits, and two sides that race.

`joined_gaps` is the relaxation in which a tensor may be absent from its first gap to its last
without a break. Some tensors of a network are read several times on the way, and so have several
gaps: the input of a residual block may leave while the block is computed, and again until the
backward pass. What is exact for one gap a tensor does not apply to them. With the uses between the
first gap and the last one left out, each has one; and every schedule remains one: of the transfers
of such a tensor the offload and the last prefetch stay, so that it is absent whenever it was, the
link carries no more, and the prefetch is in time as it was.

Stores are a heap of labels, and a hash table over their keys. A label is a row of the arrays it is
kept in; a heap and a table hold numbers of rows. Nothing here allocates: arrays grow outside the
compiled searches.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, plain_inner
from offcert.core.errors import MethodError
from offcert.core.trace import Gap, Trace
from offcert.questions.schedule.problem import Problem


def joined_gaps(problem: Problem) -> Problem:
    """Return the problem with all gaps of each tensor joined to one; a bound on it is one on this.

    Raises
    ------
    MethodError
        If no tensor has several gaps.
    """
    trace = problem.trace
    gaps: dict[int, list[Gap]] = defaultdict(list)
    for gap in trace.gaps:
        gaps[gap.tensor].append(gap)
    several = {tensor: found for tensor, found in gaps.items() if len(found) > 1}
    if not several:
        raise MethodError("no tensor has several gaps that could be joined")
    tensors = list(trace.tensors)
    for number, found in several.items():
        uses = tensors[number].uses
        first, last = found[0].before, found[-1].after
        kept = tuple(use for use in uses if use <= first or use >= last)
        tensors[number] = replace(tensors[number], uses=kept)
    return replace(problem, network=Trace(trace.operations, tensors))


Ints32 = NDArray[np.int32]

# A place of a table in which no label is entered. By definition.
NONE = -1


@plain_inner
def place_of(table: Ints32, keys: NDArray[np.integer], key: IntArray) -> int:
    """Return the place of a key in a table, free (`NONE`) or of the first label that has it.

    The table's size is a power of two, and larger than the number of labels entered; row ``i`` of
    `keys` is the key of label ``i``.
    """
    mask = np.uint64(table.size - 1)
    mixed = np.uint64(1469598103934665603)
    for i in range(key.size):
        mixed = (mixed ^ np.uint64(key[i])) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed ^ (mixed >> np.uint64(29))
    place = np.int64(mixed & mask)
    while True:
        head = table[place]
        if head < 0:
            return int(place)
        same = True
        for i in range(key.size):
            if keys[head, i] != key[i]:
                same = False
                break
        if same:
            return int(place)
        place = (place + 1) & np.int64(mask)


@plain_inner
def _before(least: IntArray, most: IntArray, one: int, two: int) -> bool:
    if least[one] != least[two]:
        return bool(least[one] < least[two])
    return bool(most[one] > most[two])


@plain_inner
def push(heap: Ints32, size: int, label: int, least: IntArray, most: IntArray) -> None:
    """Put a label on a heap of `size` labels: the least `least` first, then the most `most`."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if not _before(least, most, label, heap[above]):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = label


@plain_inner
def pop(heap: Ints32, size: int, least: IntArray, most: IntArray) -> int:
    """Take the first label off a heap of `size` labels."""
    top, moved = heap[0], heap[size - 1]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size - 1:
            break
        if child + 2 < size and _before(least, most, heap[child + 1], heap[child]):
            child += 1
        if not _before(least, most, heap[child], moved):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved
    return int(top)


class OutOfTimeError(Exception):
    """The time is over, or somebody has asked to stop."""


class OutOfLabelsError(Exception):
    """A search has grown to the size it is allowed."""


class Deadline:
    """When a search has to pause that can be taken up again.

    Parameters
    ----------
    stop : callable, optional
        Asked from time to time; if it returns true, the time is over.
    """

    def __init__(self, stop: Callable[[], bool] | None = None) -> None:
        self._stop = stop
        self._end = 0.0

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Leave the block as soon as `check` finds that it has taken so many seconds."""
        self._end = time.monotonic() + seconds
        with suppress(OutOfTimeError):
            yield

    def check(self) -> None:
        """Return if there is time left.

        Raises
        ------
        OutOfTimeError
            If not.
        """
        if time.monotonic() > self._end or (self._stop is not None and self._stop()):
            raise OutOfTimeError


class Runner(Protocol):
    """The part of a search that a race has to know."""

    @property
    def proven(self) -> int:
        """Ticks: no schedule is shorter."""


R = TypeVar("R", bound=Runner)


class Race(Generic[R]):
    """Searches, and whose turn it is.

    Parameters
    ----------
    runners : list
        The searches. A caller may add some, or put another one in the place of one.
    budget : int
        Labels that each may store in the first round.
    growth : int
        By what factor a budget grows.

    Attributes
    ----------
    runners : list
        Runners that have not dropped out.
    budget : int
        Labels that each may store in the present round.
    """

    def __init__(self, runners: list[R], budget: int, growth: int = 4) -> None:
        self.runners = runners
        self.budget = budget
        self._growth = growth
        # Runners before this place have had their turn in the present round.
        self._place = 0

    @property
    def proven(self) -> int:
        """The best bound of those that have not dropped out, in ticks."""
        return max((runner.proven for runner in self.runners), default=0)

    def give_turns(self, turn: Callable[[int], bool]) -> bool:
        """Give everyone a turn who has not had one in this round; end the round after the last.

        If a turn raises, the round can be taken up again with that turn.

        Parameters
        ----------
        turn : callable
            Given a place among the runners; lets that one search, and returns whether the race is
            over.

        Returns
        -------
        bool
            Whether the race is over.
        """
        while self._place < len(self.runners):
            if turn(self._place):
                return True
            self._place += 1
        self._place = 0
        return False

    def budgets(self, place: int, first: int, most: int) -> Iterator[int]:
        """Yield the budgets of one turn: more, as long as that raises the best bound of all.

        What rises at last is seldom overtaken, and the others take longer than the rest of it.

        Parameters
        ----------
        place : int
            Of the runner; it has to search after every budget.
        first, most : int
            The first budget, and what none exceeds, in labels.
        """
        budget = min(first, most)
        while True:
            leading = self.proven
            yield budget
            if self.runners[place].proven <= leading or budget == most:
                return
            budget = min(self._growth * budget, most)

    def grow(self) -> None:
        """Enlarge the budget for the next round."""
        self.budget *= self._growth

    def thin(self, part: tuple[int, int], key: Callable[[R], Any] | None = None) -> None:
        """Let those drop out that are behind.

        Parameters
        ----------
        part : (int, int)
            Numerator and denominator of the part that stays; one runner always does.
        key : callable, optional
            Gives the key by which runners are sorted; by default the most proved comes first.
        """
        self.runners.sort(key=key or (lambda runner: -runner.proven))
        numerator, denominator = part
        del self.runners[max(1, numerator * len(self.runners) // denominator) :]
