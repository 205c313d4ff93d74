"""The registry of bounds on pools: under which name each stands, and what supports it.

A new kind of proof is a dataclass in `offcert.proofs.placement.kinds`, an entry here, and a
verifier below `offcert.verify.placement`.
"""

from __future__ import annotations

from offcert.proofs.placement.kinds import Computed, InfeasibleSubset
from offcert.proofs.proof import Claimable, Provable
from offcert.proofs.registry import OWN

_PROOFS = (
    Provable(
        "load",
        Computed,
        "placement.bounds:load",
        "the most bytes that are taken at a time",
        "placement",
    ),
    Provable(
        "infeasible-subset",
        InfeasibleSubset,
        "placement.bounds:infeasible_subset",
        "the least pool of some of the residences, all ways of stacking them looked at",
        "placement-search",
        searched=True,
    ),
)

_CLAIMS: tuple[Claimable, ...] = (
    Claimable(
        "skyline",
        (OWN,),
        "the search over points has been through all smaller pools",
        "placement-search",
    ),
    Claimable(
        "no_overlap_cpsat",
        ("CP-SAT",),
        "the pool of rectangles that do not overlap",
        "placement-search",
    ),
)

PLACEMENT_PROOFS: dict[str, Provable] = {kind.method: kind for kind in _PROOFS}
PLACEMENT_CLAIMS: dict[str, Claimable] = {kind.method: kind for kind in _CLAIMS}


def placement_kind_of(method: str) -> Provable | Claimable | None:
    """Return what is known of bounds with a name, or None of an unknown one."""
    return PLACEMENT_PROOFS.get(method) or PLACEMENT_CLAIMS.get(method)
