"""The state of a search for addresses: the smallest pool, the bounds on it, the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcert.certification.running import Running, SearchProgress
from offcert.proofs.claims import cross_attested
from offcert.proofs.placement_certificate import PlacementCertificate, placement_kind_of
from offcert.proofs.questions import PLACEMENT
from offcert.questions.placement.problem import (
    Placement,
    PlacementOutcome,
    PlacementProblem,
    PlacementResult,
)


class PlacementSearch(Running[PlacementCertificate]):
    """Collects addresses and bounds; every placement passes the checker before it counts.

    Parameters
    ----------
    problem : PlacementProblem
        The problem that is being solved.
    time_limit : float
        Seconds.
    progress : callable, optional
        Told of every improvement and every step.
    keep : callable, optional
        Given the search before every step, and about every second when something new is known.

    Attributes
    ----------
    placement : Placement or None
        The one with the smallest pool, within the capacity or not.
    """

    question = PLACEMENT

    _least, _found = "no pool is smaller than", "one has"
    _value_of_found = "the pool of a valid placement, {} bytes"

    def __init__(
        self,
        problem: PlacementProblem,
        time_limit: float,
        progress: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[PlacementSearch], None] | None = None,
    ) -> None:
        super().__init__(time_limit, progress, None if keep is None else lambda: keep(self))
        self.problem = problem
        self.placement: Placement | None = None
        self._unlimited = problem.with_capacity(None)

    @property
    def capacity(self) -> int | None:
        """Bytes of the pool, if it has a size already."""
        return self.problem.capacity

    @property
    def objective(self) -> int | None:
        """Bytes of the smallest pool that was found."""
        return None if self.placement is None else self.placement.pool(self.problem)

    @property
    def goal(self) -> int:
        """Bytes of a pool that ends the search."""
        return max(self.lower_bound, self.capacity or 0)

    @property
    def infeasible(self) -> bool:
        """Whether no placement fits the capacity, as far as the bounds are right."""
        return self.capacity is not None and self.lower_bound > self.capacity

    @property
    def done(self) -> bool:
        """Whether nothing is left to be found, or the time is over."""
        met = self.objective is not None and self.objective <= self.goal
        return met or self.infeasible or self.late

    def offer(self, placement: Placement) -> bool:
        """Take a placement if its pool is smaller.

        Raises
        ------
        UnsoundError
            If residences overlap, or the pool is smaller than a proved lower bound.
        """
        pool = placement.pool(self.problem)
        if not self._admits(pool, self._unlimited, placement, "invalid addresses"):
            return False
        self.placement = placement
        return self._took()

    def take(self, outcome: PlacementOutcome) -> None:
        """Take over a search's placement and bounds."""
        if outcome.placement is not None:
            self.offer(outcome.placement)
        for bound in outcome.bounds:
            self.add(bound)

    def result(self) -> PlacementResult:
        """Return the smallest pool and the bounds so far; a placement counts only if it fits."""
        fits = self.capacity is None or (self.objective or 0) <= self.capacity
        bounds = tuple(cross_attested(self.bounds, placement_kind_of))
        placement = self.placement if fits else None
        return PlacementResult.of(self.problem, placement, bounds, self.seconds)

    def _certificate(self, **origin: Any) -> PlacementCertificate:
        return PlacementCertificate(self.problem, self.result(), **origin)
