"""The search for joint plans that take least memory within a deadline.

States and their values are those of the search for least time; what sinks is the limit. Annealing
goes on far below the best state, where it may never meet the deadline: what is found on the way
meets it at some higher limit, and the least of these is looked for after every round. Once that is
the limit aimed at, the next lies below; if a cooling does not get there, the next one takes a
smaller step. Small steps from the first would end in the nearest valley.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from offcert.core.errors import MethodError
from offcert.core.program import Program
from offcert.heuristics.joint.annealing import JointAnnealer, alike, weight_of
from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.plans import JointPlan, realised, tidied
from offcert.heuristics.joint.search import TAKING, Cooling, cooling_of, rounds_of
from offcert.heuristics.joint.starts import starts
from offcert.heuristics.joint.state import UNCOVERED, JointState, new_state, new_work, state_of
from offcert.heuristics.joint.tables import COMPUTE, MEMORY, Ranges, tables_of
from offcert.questions.schedule.problem import Minimise, Problem

# Temperatures at which coolings begin, in turn, as shares of the computing time. Arbitrary.
_HOT = (2e-3, 5e-4, 4e-3, 1e-3)
# Share of the time that a cooling takes. Arbitrary.
_COOLING = 0.1
# The factor on the price of a byte that does not fit (`weight_of`) with which starts are compared
# and annealing begins: fitting counts more than time. Arbitrary.
_DEAR = 100.0
# Limits between the least memory and the peak at which starts are looked for, and the starts that
# are taken at each. Arbitrary.
_LIMITS, _EACH = 10, 3
# The first and the smallest step of the limit, as parts of it, and the factors by which a step
# grows after a success and shrinks after a failure. Measured with DenseNet-201 on a V100, both
# means, 20 %: 0.235 of the peak after 25 s with smaller steps, 0.14 to 0.18 after 12 s with these.
_FIRST, _SMALLEST = 0.4, 2e-4
_LARGER, _SMALLER = 1.5, 0.5
# Part of the limit: if no more is left down to the least need, the least need is the next limit.
# Arbitrary.
_NEAR = 0.01
# Part of a state's limit to which its least limit is determined. Arbitrary.
_FINE = 2**-12

Offer = Callable[[JointPlan, int], object]


class SinkingSearch:
    """Looks for plans within the deadline that take ever less memory.

    Parameters are as for `joint_search`. The attribute `least` is the bytes at which the best state
    meets the deadline; more than the peak if there is none.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        workers: int = 1,
        seed: int = 0,
        ranges: Ranges | None = None,
        known: Sequence[Program] = (),
    ) -> None:
        if problem.deadline is None:
            raise MethodError("a search under a sinking limit needs a deadline")
        self._deadline = problem.deadline
        self._timed = replace(problem, minimise=Minimise.TIME, deadline=None)
        peak = problem.trace.peak_memory
        self._tables = tables_of(self._timed.with_memory(peak), ranges)
        self._compute = max(1.0, float(self._tables.settings[COMPUTE]))
        self._work = new_work(self._tables)
        self._weight = _DEAR * weight_of(self._tables, peak)
        # Below this nothing fits; looking for less would end nowhere.
        self._bound = problem.least_memory
        self._best: JointState | None = None
        self.least = self._told = peak + 1
        self._step, self._done = _FIRST, 0
        self._begin(known, peak)
        start = new_state(self._tables) if self._best is None else self._best
        self._annealers = [
            JointAnnealer(self._tables, start, seed + 7919 * number, self._weight)
            for number in range(workers)
        ]

    def improve(
        self,
        seconds: float,
        *,
        enough: int = 0,
        coolings: int | None = None,
        steps: int | None = None,
        on_improvement: Offer,
    ) -> None:
        """Go on until the time is over, or for so many coolings, or until `enough` bytes suffice.

        Every better plan is passed on with the bytes within which it stays.
        """
        end = time.monotonic() + seconds
        enough = max(enough, self._bound)
        self._tell(on_improvement)
        if self._best is None:
            return
        begun = self._done
        try:
            with ThreadPoolExecutor(len(self._annealers)) as pool:
                while self.least > enough and (coolings is None or self._done < begun + coolings):
                    left = end - time.monotonic()
                    if left <= 0:
                        break
                    length, hot = min(left, _COOLING * seconds), _HOT[self._done % len(_HOT)]
                    cooling = cooling_of(self._annealers[0], self._compute, hot, length, steps)
                    met = self._cool(pool, cooling, enough, end, on_improvement)
                    step = min(_FIRST, self._step * _LARGER) if met else self._step * _SMALLER
                    self._step = max(step, _SMALLEST)
                    self._done += 1
        finally:
            self._tell(on_improvement)

    def _begin(self, known: Sequence[Program], peak: int) -> None:
        """Look for starts, and take the one that takes least."""
        found = [new_state(self._tables)]
        found += [state for each in known if (state := state_of(each, self._tables)) is not None]
        classes = alike(self._tables)
        for part in np.geomspace(0.1, 0.9, _LIMITS):
            self._limit_to(int(self._bound + part * (peak - self._bound)))
            found += starts(self._tables, classes, self._work, self._weight, _EACH)
        for state in found:
            self._take(state)

    def _limit_to(self, memory: int) -> None:
        self._tables.settings[MEMORY] = memory

    def _meets(self, state: JointState, memory: int) -> bool:
        self._limit_to(memory)
        found = evaluate(self._tables, state, self._work, 0.0)
        return not self._work.facts[UNCOVERED] and found <= self._deadline

    def _take(self, state: JointState) -> bool:
        """Take a state if it meets the deadline within less memory; return whether it does."""
        if self.least <= self._bound or not self._meets(state, self.least - 1):
            return False
        low, high = self._bound, self.least - 1
        if self._meets(state, low):
            high = low
        while high - low > max(1, int(self.least * _FINE)):
            middle = (low + high) // 2
            if self._meets(state, middle):
                high = middle
            else:
                low = middle
        self._best, self.least = state.copy(), high
        return True

    def _cool(
        self, pool: ThreadPoolExecutor, cooling: Cooling, enough: int, end: float, tell: Offer
    ) -> bool:
        """Cool all annealers once, below the best; return whether their limit was met."""
        assert self._best is not None
        limit, told, met = self._sink([self._best] * len(self._annealers)), time.monotonic(), False
        for _ in rounds_of(pool, self._annealers, cooling):
            self._take_all()
            if time.monotonic() - told > TAKING:
                self._tell(tell)
                told = time.monotonic()
            if self.least <= limit:
                met = True
                if self.least <= enough:
                    break
                limit = self._sink([each.current for each in self._annealers])
            else:
                self._limit_to(limit)
            if time.monotonic() >= end:
                break
        return met

    def _take_all(self) -> None:
        """Take the annealers' states: the best in time, and the current for more memory."""
        for annealer in self._annealers:
            if annealer.makespan <= self._deadline:
                self._take(annealer.best)
            self._take(annealer.current)

    def _sink(self, states: Sequence[JointState]) -> int:
        """Let all go on a step below the best, from some states; return the limit."""
        limit = min(self.least - 1, int(self.least * (1 - self._step)))
        near = self.least - self._bound <= _NEAR * self.least
        limit = self._bound if near else max(self._bound, limit)
        self._limit_to(limit)
        for annealer, state in zip(self._annealers, states, strict=True):
            annealer.makespan = np.inf
            annealer.weight = self._weight
            annealer.restart(state)
        return limit

    def _tell(self, on_improvement: Offer) -> None:
        """Make a plan of the best state and pass it on, if it is new."""
        if self._best is None or self.least >= self._told:
            return
        self._limit_to(self.least)
        problem = self._timed.with_memory(self.least)
        for state in (tidied(self._tables, self._best, self._work), self._best):
            plan = realised(problem, self._tables, state)
            if plan is not None and plan.schedule.makespan <= self._deadline:
                self._told = self.least
                on_improvement(plan, self.least)
                return
