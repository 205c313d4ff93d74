"""A lower bound from heads and tails that move the same tensors, and the orders that attain it.

The search (``matched``) asks whether a schedule may be shorter than a *target*. The nearer a target
is to the bound proved so far, the fewer labels that takes. So targets are brought so near that few
labels settle them; when that is no longer possible, more labels are allowed. Tensors of few bytes,
of which a network has some (a batch normalisation's, say), make for many labels and matter little:
they are left out at first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offcert.core.errors import MethodError
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.labels.common import Deadline, OutOfLabelsError
from offcert.formulations.labels.ends.heads import quick_ends
from offcert.formulations.labels.ends.matched import FINEST, SMALL, MatchedSearch
from offcert.formulations.labels.ends.orders import Orders
from offcert.proofs.kinds.labels import Heads
from offcert.questions.schedule.problem import Problem, Transfers

# Labels that a level may take on one side, at first and at last. Arbitrary.
_FIRST_BUDGET = 400_000
_LAST_BUDGET = 6_400_000
# The factor by which a target that cannot be settled is brought nearer, and the one by which
# budgets and steps grow. Arbitrary.
_NEARER = 16
_STEP = 4
# The nearest target, as one part in so many of what was open at first; nearer ones are no easier.
# Arbitrary.
_NEAREST = 4096
# The factor by which units are coarser at first where sizes have too many sums. Arbitrary.
_COARSER = 32


@dataclass(frozen=True)
class MatchedOutcome:
    """The outcome of the search."""

    lower_bound: int  # Ticks; no schedule is shorter.
    proof: Heads  # The proof of the bound.
    labels: int  # Kept for it.
    orders: tuple[Orders, ...]  # Promising ones, found since the last time.
    finished: bool  # Whether more time proves nothing more.


class MatchedHeadsSearch:
    """The search at the operation that needs most; it can be taken up again where it was left.

    Parameters
    ----------
    problem : Problem
        Atomic transfers; any trace and link.
    max_labels : int
        Labels that a level may take on one side.
    stop : callable, optional
        Asked from time to time; if it returns true, the search ends with what is proved by then.

    Raises
    ------
    MethodError
        If transfers are not atomic, or nothing ever has to leave.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        max_labels: int = _LAST_BUDGET,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        if problem.transfers is not Transfers.ATOMIC:
            raise MethodError(f"matched heads need atomic transfers, not {problem.transfers}")
        required = required_absent(problem, subset_sum=True)
        if max(required, default=0) == 0:
            raise MethodError("nothing ever has to leave, so there are no heads to match")
        self.problem = problem
        self._max_labels = max_labels
        self._deadline = Deadline(stop)
        self.upper = 0
        self._required = required
        self._ends = quick_ends(problem, required, required.index(max(required)))
        sizes = sorted(problem.trace.gap_size(gap) for gap in range(len(problem.trace.gaps)))
        least = max(required) // SMALL
        large = next((size for size in sizes if size >= least), 0)
        # Searches to come: bytes of the smallest movable, and into how many units they divide.
        self._plan = [(least, FINEST) for least in ((large, 0) if sizes[0] < large else (0,))]
        self._search = self._begin()
        self.best = self._search
        self._orders: list[Orders] = []
        self._coarsened = False
        self._finished = False

    def _begin(self) -> MatchedSearch:
        self._fineness = self._plan.pop(0)
        return MatchedSearch(self.problem, self._required, self._ends, *self._fineness)

    def improve(self, upper_bound: int, time_limit: float) -> MatchedOutcome:
        """Search on, at most up to a bound of `upper_bound`, until the time or a search ends.

        To be called again as long as there is time and it is not `finished`.

        Parameters
        ----------
        upper_bound : int
            Makespan of a known schedule, in ticks; not more than the time before.
        time_limit : float
            Seconds.
        """
        self.upper = upper_bound
        self._orders = []
        with self._deadline.within(time_limit):
            if self._bound < self.upper and not self._finished:
                self._settle()
                if self._bound < self.upper and self._plan:
                    # What was found may first lower the upper bound.
                    self._search = self._begin()
                else:
                    self._finished = self._bound < self.upper
        bound, best = min(self._bound, self.upper), self.best
        return MatchedOutcome(bound, best.proof, best.labels, tuple(self._orders), self._finished)

    @property
    def _bound(self) -> int:
        return self.best.bound

    def _settle(self) -> None:
        """Search with one target after the other, until this search can prove nothing more."""
        search, budget = self._search, _FIRST_BUDGET
        step = self.upper - self._bound
        nearest = max(1, step // _NEAREST)
        while self._bound < self.upper and not search.exact and budget <= self._max_labels:
            self._deadline.check()
            try:
                search.improve(min(self.upper, self._bound + step), budget, self._deadline.check)
                step *= _STEP
            except OutOfLabelsError:
                if not search.begun and self._coarser():
                    return
                step //= _NEARER
                if step < nearest:
                    budget *= _STEP
                    step = self.upper - self._bound
            finally:
                self._note(search)

    def _coarser(self) -> bool:
        """Plan a search with coarser units, and this one again after it; only once."""
        least, finest = self._fineness
        if finest < FINEST or self._coarsened:
            return False
        self._coarsened = True
        self._plan[:0] = [(least, finest // _COARSER), (least, finest)]
        return True

    def _note(self, search: MatchedSearch) -> None:
        if search.bound > self.best.bound:
            self.best = search
        if search.orders is not None:
            self._orders.append(search.orders)
            search.orders = None
