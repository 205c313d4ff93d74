"""`Rung`: one step of a ladder, for which problems it is, and how long it may take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from offcert.certify.effort import Effort
from offcert.certify.long_traces import has_early_gaps, is_fine
from offcert.certify.search import Search
from offcert.core.problem import Transfers


@dataclass(frozen=True)
class Rung:
    """One step of a ladder.

    Attributes
    ----------
    run : callable
        The step.
    share : float
        The part of the remaining time that it may take.
    reason : str
        Why it stands here, and why it gets this time.
    at_least, at_most : float
        Minimum seconds, if so many are left, and maximum seconds.
    always : bool
        Whether it runs even when the time is over, so that there is a plan and a bound.
    atomic_only, relaxed_only : bool
        Whether it is for atomic transfers only, or for all but these.
    fine_only : bool
        Whether it is for fine traces only; see `is_fine`.
    early_gaps_only : bool
        Whether it is only for traces on which a tensor has to return before another is written.
    gap_from : float
        Least gap at which it is worth its time.
    open_from, open_to : float
        Between which parts of the makespan the outward search must have left open.
    most_operations : float
        Longest trace on which it ends in time.
    needs : float
        Seconds below which it is not begun.
    """

    run: Callable[[Search, Effort], None]
    share: float
    reason: str
    at_least: float = 0.0
    at_most: float = math.inf
    always: bool = False
    atomic_only: bool = False
    relaxed_only: bool = False
    fine_only: bool = False
    early_gaps_only: bool = False
    gap_from: float = 0.0
    open_from: float = 0.0
    open_to: float = math.inf
    most_operations: float = math.inf
    needs: float = 0.0

    @property
    def name(self) -> str:
        """The name of its step."""
        return self.run.__name__

    def suits(self, search: Search) -> bool:
        """Return whether it is for such a problem, at this point of the search."""
        problem = search.problem
        atomic = problem.transfers is Transfers.ATOMIC
        return (
            not (self.relaxed_only if atomic else self.atomic_only)
            and search.gap >= self.gap_from
            and len(problem.trace) <= self.most_operations
            and (not self.fine_only or is_fine(problem))
            and (not self.early_gaps_only or has_early_gaps(problem))
            and self.open_from <= search.workings.outward_open <= self.open_to
        )

    def seconds(self, left: float) -> float:
        """Return how long it may take if so many seconds are left."""
        return min(max(self.share * left, min(self.at_least, left)), self.at_most)
