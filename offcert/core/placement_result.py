"""`PlacementResult`: the addresses that were found, and what is known of the least pool."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.placement import Placement, PlacementProblem
from offcert.core.result import Bound, Evidence, SolveStatus, relative_gap
from offcert.core.units import Units, format_size


@dataclass(frozen=True)
class PlacementResult:
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
        least = max((bound.value for bound in bounds), default=0)
        if problem.capacity is not None and least > problem.capacity:
            status = SolveStatus.INFEASIBLE
        elif pool is None:
            status = SolveStatus.UNKNOWN
        else:
            status = SolveStatus.OPTIMAL if pool == least else SolveStatus.FEASIBLE
        return cls(status, placement, pool, bounds, runtime)

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
    def lower_bound(self) -> int:
        """The best lower bound, in bytes; 0 if there is none."""
        return max((bound.value for bound in self.bounds), default=0)

    @property
    def evidence(self) -> Evidence | None:
        """The strongest evidence claimed for the best lower bound; None without a bound."""
        levels = [bound.evidence for bound in self.bounds if bound.value == self.lower_bound]
        return min(levels, key=list(Evidence).index, default=None)

    @property
    def gap(self) -> float:
        """``(pool - lower bound) / pool``; infinite without addresses."""
        return relative_gap(self.pool, self.lower_bound)
