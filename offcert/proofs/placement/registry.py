"""Bounds on pools as their finders state them: proved, or somebody's word."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.forms import integers
from offcert.core.result import Bound
from offcert.proofs.claims import claimed as claimed
from offcert.proofs.claims import searched as searched
from offcert.proofs.kinds.computed import Computed as Computed
from offcert.proofs.proof import Claimable, Proof, Provable
from offcert.proofs.registry import OWN


@dataclass(frozen=True, kw_only=True)
class InfeasibleSubset(Proof):
    """Residences that do not fit into any pool smaller than the bound.

    Attributes
    ----------
    residences : tuple of int
        Numbers of the residences.
    """

    residences: tuple[int, ...] = integers(0)


_PROOFS = (
    Provable(
        "load",
        Computed,
        "placement_bounds:load",
        "the most bytes that are taken at a time",
        "placement",
    ),
    Provable(
        "infeasible-subset",
        InfeasibleSubset,
        "placement_bounds:infeasible_subset",
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
    """Return the row of the registry for bounds with a name, or None if the name is unknown."""
    return PLACEMENT_PROOFS.get(method) or PLACEMENT_CLAIMS.get(method)


def proved(method: str, value: int, proof: Proof) -> Bound:
    """Return a bound of so many bytes that verification establishes again."""
    return PLACEMENT_PROOFS[method].bound(value, proof)
