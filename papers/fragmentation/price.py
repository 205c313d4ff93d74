"""The price of fragmentation: what it costs that everything needs an address."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.options import require_count, require_seconds, require_seed
from offcert.core.result import SolveStatus
from offcert.proofs.certificate import Certificate, current_versions
from offcert.proofs.placement_certificate import PLACEMENT_PROOFS, Computed, PlacementCertificate
from offcert.questions.placement.problem import PlacementResult
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.questions.schedule.residences import placement_problem, residences
from offcert.questions.schedule.result import Result, require_problem
from papers.fragmentation.placed_cpsat import PlacedOutcome, solve_placed

_METHOD = "placed-cpsat"


@dataclass(frozen=True)
class FragmentationPrice:
    """The least time with addresses, beside the least time without.

    Attributes
    ----------
    problem : Problem
        Of which both are solutions.
    without : PlacedOutcome
        Of schedules within the memory limit.
    placed : PlacedOutcome
        Of schedules of which everything has an address in a pool of the memory's size.
    """

    problem: Problem
    without: PlacedOutcome
    placed: PlacedOutcome

    @property
    def closed(self) -> bool:
        """Whether both are known, on the solver's word."""
        return self.without.closed and self.placed.closed

    @property
    def ticks(self) -> int | None:
        """The price, if it is known; None too if there are schedules, but none with addresses."""
        if not self.closed or self.placed.makespan is None or self.without.makespan is None:
            return None
        return self.placed.makespan - self.without.makespan

    def certificate(self) -> Certificate:
        """Return the schedule with its addresses, as a certificate that holds no bound on time.

        Raises
        ------
        InputError
            If there is none.
        """
        schedule, placement = self.placed.schedule, self.placed.placement
        if schedule is None or placement is None:
            raise InputError("no schedule with addresses is known")
        placing = placement_problem(self.problem, schedule, self.problem.platform.memory)
        bounds = (PLACEMENT_PROOFS["load"].bound(placing.load, Computed()),)
        versions = current_versions()
        part = PlacementCertificate(
            placing,
            PlacementResult.of(placing, placement, bounds),
            method=_METHOD,
            versions=versions,
            occupants=tuple(of for of, _ in residences(self.problem.trace, schedule)),
        )
        status = SolveStatus.FEASIBLE if schedule.makespan else SolveStatus.OPTIMAL
        result = Result(status, schedule)
        return Certificate(self.problem, result, method=_METHOD, versions=versions, placement=part)


def price_of_fragmentation(
    problem: Problem, *, time_limit: float = 60.0, workers: int = 1, seed: int = 0
) -> FragmentationPrice:
    """Solve a small problem with and without addresses.

    Parameters
    ----------
    problem : Problem
        With atomic transfers, nothing that runs again, and time as its objective. Every tick and
        byte counts, so times and sizes should be small numbers.
    time_limit : float
        Seconds for each of both.
    workers, seed : int
        For the solver.

    Raises
    ------
    InputError
        If the problem is of another kind, or an argument out of its range.
    """
    require_problem(problem)
    asked = {
        "time_limit": require_seconds(time_limit, "time_limit"),
        "workers": require_count(workers, "workers"),
        "seed": require_seed(seed, "seed"),
    }
    if problem.transfers is not Transfers.ATOMIC:
        raise InputError(f"addresses need atomic transfers, not {problem.transfers}")
    if problem.recompute is not Recompute.NONE or problem.minimise is not Minimise.TIME:
        raise InputError("the price of fragmentation is known where nothing runs again, in time")
    without = solve_placed(problem, addresses=False, **asked)  # type: ignore[arg-type]
    if without.infeasible:
        return FragmentationPrice(problem, without, without)
    placed = solve_placed(problem, lower_bound=without.lower_bound, **asked)  # type: ignore[arg-type]
    return FragmentationPrice(problem, without, placed)
