"""Common parts of all searches over labels: their limits, and two sides that race.

`joined_gaps` is the relaxation in which a tensor may be absent from its first gap to its last
without a break. Some tensors of a network are read several times on the way, and so have several
gaps: the input of a residual block may leave while the block is computed, and again until the
backward pass. What is exact for one gap a tensor does not apply to them. With the uses between the
first gap and the last one left out, each has one; and every schedule remains one: of the transfers
of such a tensor the offload and the last prefetch stay, so that it is absent whenever it was, the
link carries no more, and the prefetch is in time as it was.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from offcert.core.errors import MethodError
from offcert.core.trace import Gap, Trace
from offcert.questions.schedule.problem import Problem


def joined_gaps(problem: Problem) -> Problem:
    """Return the problem with all gaps of each tensor joined; a bound on it is one on this.

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


class OutOfTimeError(Exception):
    """The time is over, or somebody has asked to stop."""


class OutOfLabelsError(Exception):
    """A search has grown to the size it is allowed."""


class Deadline:
    """The time at which a search has to pause that can be taken up again.

    If `stop` returns true, which is asked from time to time, the time is over.
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
        """Return if there is time left, or raise `OutOfTimeError`."""
        if time.monotonic() > self._end or (self._stop is not None and self._stop()):
            raise OutOfTimeError


class Runner(Protocol):
    """The part of a search that a race has to know."""

    @property
    def proven(self) -> int:
        """Lower bound on the makespan, in ticks."""


R = TypeVar("R", bound=Runner)


class Race(Generic[R]):
    """Searches that take turns, each of which may store so many labels in a round.

    A caller may add runners, or put another one in the place of one. After each round the budget
    grows by a factor.
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
        """Give everyone a turn who has not had one in this round; return whether the race is over.

        `turn` is given a place among the runners, lets that one search, and returns whether the
        race is over. After the last turn the round ends. If a turn raises, the round can be taken
        up again with that turn.
        """
        while self._place < len(self.runners):
            if turn(self._place):
                return True
            self._place += 1
        self._place = 0
        return False

    def budgets(self, place: int, first: int, most: int) -> Iterator[int]:
        """Yield the budgets of one turn: more, as long as that raises the best bound of all.

        The first is `first`, and none exceeds `most`. The runner at `place` has to search after
        every budget. What rises at last is seldom overtaken, and the others take longer than the
        rest of it.
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
        """Let those drop out that are behind; a `part` stays, and always one runner.

        The part is a numerator and a denominator. Runners are sorted by `key`; by default the most
        proved comes first.
        """
        self.runners.sort(key=key or (lambda runner: -runner.proven))
        numerator, denominator = part
        del self.runners[max(1, numerator * len(self.runners) // denominator) :]
