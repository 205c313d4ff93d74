"""Pivots that compete, each with one side searched and the other asked outward.

Why it is a lower bound. Take any schedule; it may be assumed canonical (``pivot.model``). Cut it
where the pivot starts. Of the side that is searched there is a label that is at least as good: the
same tensors are out at the cut, the side ends no later, and the link is free no later. The other
side has the same tensors out, so it takes at least what the outward search says of that set. A
transfer that straddles the cut is one of two. Its tensor returns to the searched side; then what is
left of it when that side ends keeps the other side's link busy. Or its tensor is to be out on the
other side; then it begins as the searched side's next transfer would. It does not help if the
searched side ends later than it can: the other side loses as many ticks, and its link is free no
more ticks sooner.

Suppose that all labels have been searched whose side can end by a limit, and that all they ask of
the other side is refuted. Then a schedule that was missed has a searched side that ends later than
the limit, while its other side does not end before its own least end.
docs/theory/pivot-outward.md has the proof, with an example on paper.

Why it pays. The pivot program searches both sides, and one of them often takes forty times the
labels of the other. But the sets with which the smaller side ends in time are few, and once a set
is known the outward search refutes most of them at a glance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from offcert.core.errors import MethodError
from offcert.formulations.labels.atomic_heads.bound import SideEnds
from offcert.formulations.labels.common import Deadline, OutOfLabelsError, Race
from offcert.formulations.labels.pivot.model import nested
from offcert.formulations.labels.pivot_outward.cut import OneSidedCut
from offcert.proofs.kinds.labels import PivotOutward
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Places of the default pivots, in sixteenths of the trace: near the turn both sides are alike.
# Arbitrary.
_PLACES = (8, 9, 7)
# Labels of each pivot at first, and the part of the pivots that every increase leaves, as a
# fraction. Arbitrary.
_FIRST_BUDGET = 80_000
_KEPT = 2, 3
# Labels after which the search ends if no pivot has proved anything. Arbitrary.
_PATIENCE = 1_280_000


@dataclass(frozen=True)
class PivotOutwardOutcome:
    """The outcome of the search.

    Attributes
    ----------
    lower_bound : int
        Ticks; no schedule is shorter.
    pivot : int
        The operation at which that was proved; -1 if it needs no cut.
    side : int
        The side that was searched: 0 for the front, 1 for the back.
    limit : int
        Its end up to which an independent search has to look to confirm the bound.
    ends : SideEnds or None
        Ends of the sides that the search took as proved.
    free_below : tuple of int
        Bytes of the smallest tensors that were told apart on the other side, at first and at last.
    labels : int
        Stored by the pivot that proved it.
    finished : bool
        Whether more time proves nothing more.
    """

    lower_bound: int
    pivot: int
    side: int
    limit: int
    ends: SideEnds | None
    free_below: tuple[int, ...]
    labels: int
    finished: bool

    def to_proof(self) -> PivotOutward:
        """Return the proof for certificates of a bound that was proved at a cut."""
        assert self.ends is not None
        return PivotOutward(
            pivot=self.pivot,
            side=self.side,
            limit=self.limit,
            free_below=tuple(self.free_below),
            ends=self.ends.to_ends(),
        )


class PivotOutwardSearch:
    """The search; it can be taken up again where it was left.

    Parameters
    ----------
    problem : Problem
        Atomic transfers, simplex link, one gap per evictable tensor, gaps nested. A feasible one.
    max_labels : int
        About 100 bytes each.
    pivots : sequence of int, optional
        Operations to cut at; by default some near the middle of the trace, and the one that needs
        most.
    stop : callable, optional
        Asked from time to time; if it returns true, the search ends with what is proved by then.
    workers : int
        Threads. What is found does not depend on them.
    most_open : float
        If heads and tails leave more than this part of the upper bound open, nothing is searched:
        then it pays to search both sides, as the pivot program does.

    Raises
    ------
    MethodError
        If the problem is of another kind.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        max_labels: int,
        pivots: Sequence[int] | None = None,
        stop: Callable[[], bool] | None = None,
        workers: int = 1,
        most_open: float = 1.0,
    ) -> None:
        self._data = nested(problem)
        self._max_labels = max_labels
        self._workers = workers
        self._most_open = most_open
        self._deadline = Deadline(stop)
        required = self._data.required
        if pivots is None:
            middle = [len(required) * place // 16 for place in _PLACES]
            pivots = [*middle, required.index(max(required))]
        self._pivots = [pivot for pivot in dict.fromkeys(pivots) if required[pivot] > 0]
        self._race: Race[OneSidedCut] = Race([], _FIRST_BUDGET)
        self._upper = 0
        self._offer: Callable[[Schedule], int] = lambda schedule: 0

    def improve(
        self,
        upper_bound: int,
        time_limit: float,
        offer: Callable[[Schedule], int],
        known: Sequence[SideEnds] = (),
    ) -> PivotOutwardOutcome:
        """Search on, until the bound is that of the best schedule, or the time is over.

        It also ends when much has been tried and nothing come of it; called again, it goes on.

        Parameters
        ----------
        upper_bound : int
            Makespan of the best schedule known, in ticks; not more than the time before.
        time_limit : float
            Seconds.
        offer : callable
            Given what may be a schedule, small transfers apart; returns the makespan of the best
            one known then.
        known : sequence of SideEnds
            Of the sides of some of the pivots.
        """
        self._upper, self._offer = upper_bound, offer
        race = self._race
        with self._deadline.within(time_limit):
            self._set_up(known)
            while not self._finished and not self._is_far:
                known_before = race.proven
                if not race.give_turns(self._give_turn):
                    race.grow()
                    race.thin(_KEPT)
                if race.budget > _PATIENCE and race.proven == known_before:
                    break
        return self._outcome()

    @property
    def _is_far(self) -> bool:
        return self._upper - self._race.proven > self._most_open * self._upper

    @property
    def _finished(self) -> bool:
        if self._pivots:
            return False
        race = self._race
        if race.proven >= self._upper:
            return True
        share = self._max_labels // max(1, len(race.runners))
        return race.budget > 4 * share or all(cut.stuck for cut in race.runners)

    def _set_up(self, known: Sequence[SideEnds]) -> None:
        cuts = self._race.runners
        while self._pivots:
            self._deadline.check()
            with suppress(MethodError):
                cuts.append(OneSidedCut(self._data, self._pivots[0], self._workers))
            del self._pivots[0]
            if not self._pivots:
                cuts.sort(key=lambda cut: -cut.proven)
        for ends in known:
            for cut in cuts:
                if cut.pivot == ends.pivot:
                    cut.take(ends)

    def _give_turn(self, place: int) -> bool:
        """Let a pivot search; return whether no schedule is shorter than the best one known."""
        race = self._race
        cut = race.runners[place]
        for budget in race.budgets(place, race.budget, self._max_labels // len(race.runners)):
            with suppress(OutOfLabelsError):
                while not cut.stuck and cut.proven < self._upper:
                    check = self._deadline.check
                    self._upper = cut.round(self._upper, self._offer, check, budget)
            if cut.stuck or cut.proven >= self._upper:
                break
        return race.proven >= self._upper

    def _outcome(self) -> PivotOutwardOutcome:
        best = max(self._race.runners, key=lambda cut: cut.proven, default=None)
        if best is None:
            return PivotOutwardOutcome(0, -1, 0, -1, None, (), 0, self._finished)
        bound = min(best.proven, self._upper)
        return PivotOutwardOutcome(
            lower_bound=bound,
            pivot=best.pivot,
            side=best.side,
            limit=bound - 1 - best.minimum[1 - best.side],
            ends=best.ends,
            free_below=best.levels,
            labels=best.labels,
            finished=self._finished,
        )
