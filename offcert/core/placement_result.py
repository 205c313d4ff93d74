"""`PlacementResult`: the addresses that were found, and what is known of the least pool."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offcert.core.placement import Placement, PlacementProblem
from offcert.core.result import Bound, Bounded, SolveStatus
from offcert.core.units import Units, format_size


@dataclass(frozen=True)
class PlacementResult(Bounded):
    """What a search for addresses found.

    Attributes
    ----------
    status : SolveStatus
        ``OPTIMAL`` only if the pool equals the lower bound; ``INFEASIBLE`` only if the lower bound
        exceeds the capacity; ``UNKNOWN`` if there are no addresses within it.
    placement : Placement or None
        Within the capacity, if there is one.
    pool : int or None
        Bytes that it takes: the objective.
    bounds : tuple of Bound
        In bytes, each of the least pool, whatever the capacity.
    runtime : float
        Seconds.
    """

    status: SolveStatus
    placement: Placement | None
    pool: int | None
    bounds: tuple[Bound, ...] = ()
    runtime: float = 0.0

    @classmethod
    def of(
        cls,
        problem: PlacementProblem,
        placement: Placement | None,
        bounds: tuple[Bound, ...] = (),
        runtime: float = 0.0,
    ) -> PlacementResult:
        """Return the result with the status that a placement and bounds amount to."""
        pool = None if placement is None else placement.pool(problem)
        found = cls(SolveStatus.UNKNOWN, placement, pool, bounds, runtime)
        return replace(found, status=found.status_within(problem))

    def status_within(self, problem: PlacementProblem) -> SolveStatus:
        """Return the status that pool and bounds amount to within a problem's capacity."""
        return self.status_by(problem.capacity is not None and self.lower_bound > problem.capacity)

    def __repr__(self) -> str:
        return f"<PlacementResult {self.summary()}>"

    def summary(self, units: Units | None = None) -> str:
        """Return status, pool and bound in a line for people.

        Parameters
        ----------
        units : Units, optional
            The problem's; by default bytes.
        """
        units = units or Units("tick", "B")
        bound = f"lower bound {format_size(self.lower_bound, units)} ({self.evidence or 'none'})"
        if self.pool is None:
            return f"{self.status}: no addresses, {bound}"
        pool = format_size(self.pool, units)
        if self.status is SolveStatus.OPTIMAL:
            return f"{self.status}: pool {pool} ({self.evidence or 'no bound'})"
        return f"{self.status}: pool {pool}, {bound}, gap {100 * self.gap:.3g} %"

    @property
    def objective(self) -> int | None:
        """Bytes of the pool."""
        return self.pool
