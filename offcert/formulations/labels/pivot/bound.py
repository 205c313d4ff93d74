"""The pivot dynamic program for atomic transfers on nested single-gap traces; no solver.

Searches of both sides (``kernel``) are joined (``cut``), at several pivots that compete; what was
searched up to limits makes a bound. A class that leaves again after it has returned, in the best
join, is tracked from then on, and the search starts anew. On simplex links that is exact. On duplex
links the best join need be no schedule, which ends the search of that pivot. docs/theory/pivot.md
has the proofs, with an example on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial

import numpy as np

from offcert.core.errors import PlanError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import heads_and_tails
from offcert.formulations.labels.common import Deadline, OutOfLabelsError, Race
from offcert.formulations.labels.pivot.cut import Cut
from offcert.formulations.labels.pivot.model import NestedProblem, nested
from offcert.proofs.kinds.labels import Heads, Pivot
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate

# Places of the default pivots, in sixteenths of the trace, and labels that a search may hold at
# first. Arbitrary.
PLACES = (4, 5, 3, 6, 2, 7, 8, 9, 10, 12, 14)
FIRST_BUDGET = 1_000
# The factor by which a pivot may hold more labels if a bound on its sides is known, on a simplex
# link; on a duplex one others are as good, as for DenseNet-161 at 500². Arbitrary.
_FAVOUR = 8
# Labels from which on every increase leaves only a part of the pivots, and that part as a fraction.
# A pivot that raises the bound gets more labels at once, before the others. Arbitrary.
THINNING_BUDGET = 64_000
_KEPT = 2, 3
# Times what the best pivot leaves open that a pivot may leave open and stay: at the turn of ResNets
# it is a hundredth of what it is an operation further. Arbitrary.
_FAR_BEHIND = 16


@dataclass(frozen=True)
class PivotOutcome:
    """The outcome of the pivot dynamic program."""

    # Ticks; no schedule is shorter. It never exceeds the shorter of the upper bound given and the
    # schedule found.
    lower_bound: int
    # Whether no schedule is shorter than the upper bound given or the schedule found.
    complete: bool
    schedule: Schedule | None  # A schedule shorter than the upper bound given, if one was found.
    proof: Pivot  # What an independent search has to look at to confirm the bound.
    labels: int = 0  # Labels stored for this proof.
    # Labels stored by all pivots that competed: what the search cost, the same on every machine
    # unless the time or `stop` ended it.
    searched: int = 0


# The proof of a bound that needs no cut.
_NO_CUT = Pivot(pivot=-1, front_limit=-1, back_limit=-1)


def default_pivots(data: NestedProblem) -> tuple[int, ...]:
    """Return operations spread over the trace, early ones more densely.

    On a duplex link the first is where head and tail are longest. On a simplex one that takes about
    a tenth more labels, measured on seven networks.
    """
    count = len(data.required)
    pivots = [count * place // 16 for place in PLACES]
    if data.problem.platform.duplex:
        ends = heads_and_tails(data.problem, data.required)
        sums = [head + tail for head, tail in zip(ends.heads, ends.tails, strict=True)]
        pivots.insert(0, sums.index(max(sums)))
    return tuple(dict.fromkeys(pivots))


def pivot_bound(
    problem: Problem,
    *,
    upper_bound: int,
    time_limit: float,
    max_labels: int,
    pivots: Sequence[int] | None = None,
    stop: Callable[[], bool] | None = None,
) -> PivotOutcome:
    """Prove a lower bound, and look for a schedule shorter than `upper_bound`.

    Parameters
    ----------
    problem : Problem
        Atomic transfers, one gap per evictable tensor, gaps nested.
    upper_bound : int
        Makespan, in ticks, of a known schedule, or any number: schedules that long or longer are
        not looked for.
    time_limit : float
        Seconds, after compilation and set-up.
    max_labels : int
        About 100 bytes each.
    pivots : sequence of int, optional
        Operations to cut at. By default some spread over the trace: which is best is seldom known
        beforehand and makes a difference of orders of magnitude, so they compete.
    stop : callable, optional
        Asked from time to time; if it returns true, the search ends with what is proved by then.

    Raises
    ------
    MethodError
        If the problem is of another kind.
    """
    search = PivotSearch(problem, max_labels=max_labels, pivots=pivots, stop=stop)
    return search.improve(upper_bound, time_limit)


@cache
def _compile() -> None:
    """Have everything compiled, so that time limits are about searching."""
    tensors = [Tensor("v", 1, (0, 2)), Tensor("w", 1, (1,), evictable=False)]
    trace = Trace([Operation(name, 1) for name in "abc"], tensors)
    cut = Cut(nested(Problem("tiny", trace, Platform(1, Fraction(1)))), 1)
    cut.round(10, lambda: None, 1_000)


def _unconstrained(problem: Problem, upper_bound: int) -> PivotOutcome:
    """Return the outcome where nothing ever has to leave."""
    length = problem.trace.compute_time
    if length >= upper_bound:
        return PivotOutcome(upper_bound, True, None, _NO_CUT)
    ends = np.cumsum(problem.trace.durations).tolist()
    starts = [end - d for end, d in zip(ends, problem.trace.durations, strict=True)]
    return PivotOutcome(length, True, Schedule(starts, ends, ()), _NO_CUT)


class PivotSearch:
    """The search behind `pivot_bound`, which can be taken up again where it was left.

    Pivots compete, each with a budget of labels that grows. Arguments and errors are those of
    `pivot_bound`.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        max_labels: int,
        pivots: Sequence[int] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.data = nested(problem)
        self.max_labels = max_labels
        self.upper = 0
        self.schedule: Schedule | None = None
        self.best: PivotOutcome | None = None
        self.searched = 0
        self._pivots = list(default_pivots(self.data) if pivots is None else pivots)
        self._race: Race[Cut] = Race([], FIRST_BUDGET)
        self._favoured: set[int] = set()
        self._favour = 1 if problem.platform.duplex else _FAVOUR
        self._exhausted = False
        self._deadline = Deadline(stop)
        _compile()

    def improve(
        self, upper_bound: int, time_limit: float, known: Sequence[Heads] = ()
    ) -> PivotOutcome:
        """Search on, for a schedule shorter than `upper_bound` and a higher bound.

        `time_limit` is in seconds. The pivots of `known` heads and tails are worth a search of
        their own. Labels that are too late for a schedule found earlier are forgotten, so from then
        on the bound is at most its makespan, even if it is longer on the caller's link.
        """
        problem = self.data.problem
        if problem.trace.least_memory > problem.platform.memory:
            return PivotOutcome(upper_bound, True, None, _NO_CUT)
        if not (self._pivots or self._race.runners) or max(self.data.required) == 0:
            return _unconstrained(problem, upper_bound)
        self.upper = upper_bound if self.best is None else min(upper_bound, self.upper)
        self.schedule = None
        with self._deadline.within(time_limit):
            self._set_up(known)
            self._run_race()
        assert self.best is not None
        bound = min(self.best.lower_bound, self.upper)
        return replace(
            self.best,
            lower_bound=bound,
            schedule=self.schedule,
            complete=bound == (upper_bound if self.schedule is None else self.upper),
            searched=self.searched,
        )

    def _set_up(self, known: Sequence[Heads]) -> None:
        """Cut at every pivot, and use known ends of the sides of some."""
        cuts = self._race.runners
        for ends in known:
            self._favoured.add(ends.pivot)
            at = [cut for cut in cuts if cut.pivot == ends.pivot]
            if not at:
                at = [Cut(self.data, ends.pivot)]
                cuts.insert(0, at[0])
                self._exhausted = False
            at[0].take(ends)
            self._note(at[0])
        while self._pivots:
            if cuts:
                # On long traces cutting takes a while.
                self._deadline.check()
            pivot = self._pivots[0]
            if all(cut.pivot != pivot for cut in cuts):
                cuts.append(Cut(self.data, pivot))
                self._note(cuts[-1])
            del self._pivots[0]

    def _run_race(self) -> None:
        race = self._race
        while not self._exhausted:
            # All searches that are kept share the labels.
            share = self.max_labels // len(race.runners)
            if race.give_turns(partial(self._give_turn, share=share)):
                return
            race.runners = [cut for cut in race.runners if not cut.stuck] or race.runners[:1]
            exhausted = race.budget >= share or race.runners[0].stuck
            self._exhausted = exhausted and len(race.runners) == 1
            if exhausted or race.budget >= THINNING_BUDGET:
                race.thin(_KEPT)
                most = _FAR_BEHIND * (self.upper - race.proven)
                race.runners = [cut for cut in race.runners if self.upper - cut.proven <= most]
            race.grow()

    def _give_turn(self, place: int, share: int) -> bool:
        """Let a cut search, one about whose sides something is known with more labels.

        Return whether it has proved that no schedule is shorter than the best one known.
        """
        race, most = self._race, max(1, share)
        favour = self._favour if race.runners[place].pivot in self._favoured else 1
        for budget in race.budgets(place, favour * race.budget, most):
            race.runners[place] = cut = self._advance(race.runners[place], budget)
            if cut.proven >= self.upper or budget < THINNING_BUDGET:
                break
        return race.runners[place].proven >= self.upper

    def _advance(self, cut: Cut, budget: int) -> Cut:
        """Search within the budget; return the cut, or one that tracks more classes instead."""
        counted = cut.labels
        try:
            while cut.proven < self.upper and not cut.stuck:
                found = cut.round(self.upper, self._deadline.check, budget)
                twice = frozenset() if found is None else self._accept(found)
                cut.stuck = found is not None and not twice and self.upper > found.makespan
                if twice:
                    self._note(cut)
                    self.searched += cut.labels - counted
                    cut, counted = Cut(self.data, cut.pivot, cut.tracked | twice, cut.ends), 0
        except OutOfLabelsError:
            pass
        finally:
            self.searched += cut.labels - counted
            self._note(cut)
        return cut

    def _accept(self, found: Schedule) -> frozenset[int]:
        """Keep a schedule, unless tensors leave twice in it; return the classes of those.

        On a duplex link it need not be one: then what comes of the same order of transfers is.
        """
        leaving = [item.gap for item in found.transfers if item.kind is Kind.OFFLOAD]
        twice = frozenset(
            c
            for c, members in enumerate(self.data.classes)
            if any(leaving.count(item.gap) > 1 for item in members)
        )
        if not twice:
            faults = check(self.data.problem, found)
            if faults and not self.data.problem.platform.duplex:
                raise AssertionError(f"the pivot program joined no schedule: {faults[0]}")
            if faults:
                try:
                    found = simulate(self.data.problem, found.plan(self.data.problem.trace))
                except PlanError:
                    return twice
            if found.makespan < self.upper:
                self.schedule, self.upper = found, found.makespan
        return twice

    def _note(self, cut: Cut) -> None:
        """Remember the bound of a cut, if it is more than the one known."""
        bound = min(cut.proven, self.upper)
        if self.best is not None and bound <= self.best.lower_bound:
            return
        front_limit = bound - 1 - cut.minimum[1]
        # A search of the front up to its limit shows no larger minimum than this.
        front = min(cut.minimum[0], front_limit + 1)
        proof = Pivot(
            pivot=cut.pivot,
            front_limit=front_limit,
            back_limit=bound - 1 - front,
            once=tuple(item.gap for c in sorted(cut.tracked) for item in self.data.classes[c]),
            ends=cut.ends.ends,
        )
        self.best = PivotOutcome(bound, False, None, proof, cut.labels)
