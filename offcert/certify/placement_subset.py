"""The step that proves bounds on pools: residences that do not fit into less."""

from __future__ import annotations

import time

from offcert.certify.effort import Effort
from offcert.certify.placement_search import PlacementSearch
from offcert.core.result import Bound
from offcert.proofs.placement.claims import proved
from offcert.proofs.placement.kinds import InfeasibleSubset
from offcert.proofs.placement.registry import PLACEMENT_PROOFS
from offcert.verify.limits import BeyondLimitsError, Limits
from offcert.verify.recheck import recheck

# The name of its bounds.
SUBSET = "infeasible-subset"
# Which part of the time looks for what does not fit, and which makes it smaller; the rest checks.
_EXCLUDE, _REDUCE = 0.4, 0.3


def prove_by_subset(search: PlacementSearch, effort: Effort) -> None:
    """Add the largest bound that verification will establish from residences that do not fit."""
    search.begin(SUBSET)
    from offcert.formulations.placement.infeasible_subset import exclude, reduced

    began = time.monotonic()
    problem, seed = search.problem, effort.seed
    least = max(search.proved_bound, problem.load)
    until = began + _EXCLUDE * effort.seconds
    excluded = exclude(problem, least, until, seed, search.placement, search.offer)
    if excluded is None:
        return
    fewer = reduced(problem, excluded, time.monotonic() + _REDUCE * effort.seconds, seed)
    # Fewer residences are easier to read, but may take longer to look through than all.
    for each in (fewer, excluded):
        bound = proved(SUBSET, each.value, InfeasibleSubset(residences=each.residences))
        if _holds(search, bound, (began + effort.seconds - time.monotonic()) / 2):
            search.add(bound)
            return


def _holds(search: PlacementSearch, bound: Bound, seconds: float) -> bool:
    """Return whether verification establishes a bound within so many seconds."""
    if seconds <= 0:
        return False
    try:
        allowance = Limits(seconds=seconds).begin()
        return recheck(bound, search.problem, allowance, PLACEMENT_PROOFS) is None
    except BeyondLimitsError:
        return False
