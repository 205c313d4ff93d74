"""The registry of bounds on pools: under which name each stands, and what supports it.

A new kind of proof is a dataclass in `offcert.proofs.placement.kinds`, an entry here, and a
verifier below `offcert.verify.placement`.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.result import Evidence
from offcert.proofs.placement.kinds import Computed
from offcert.proofs.proof import Proof, Provable
from offcert.proofs.registry import OWN


@dataclass(frozen=True)
class PlacementProofKind(Provable):
    """A kind of bound on a pool that can be established again without a solver.

    Attributes
    ----------
    method : str
        Its name in documents.
    proof : type
        The dataclass of what a document holds for it.
    verifier : str
        Module and function below `offcert.verify`, as ``"placement.bounds:load"``. The function
        takes the problem, the bound's value, the proof and limits, and returns what is wrong, or
        None.
    summary : str
        What the bound says, in one line.
    page : str
        Of the documentation, below ``docs/theory``.
    searched : bool
        Whether verification searches, which may take long.
    families : tuple of str
        Solvers whose word the bound is where a proof takes too long, if there are any.
    """

    method: str
    proof: type[Proof]
    verifier: str
    summary: str
    page: str = "placement"
    searched: bool = False
    families: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlacementClaimKind:
    """A kind of bound on a pool that rests on the word of a solver.

    Attributes
    ----------
    method : str
        Its name in documents.
    families : tuple of str
        Solvers that may claim it, under one name for all that are the same inside.
    summary : str
        What the bound says, in one line.
    page : str
        Of the documentation, below ``docs/theory``.
    """

    method: str
    families: tuple[str, ...]
    summary: str
    page: str = "placement"

    evidence = Evidence.ATTESTED


_PROOFS = (
    PlacementProofKind(
        "load",
        Computed,
        "placement.bounds:load",
        "the most bytes that are taken at a time",
    ),
)

_CLAIMS: tuple[PlacementClaimKind, ...] = (
    PlacementClaimKind(
        "skyline",
        (OWN,),
        "the search over points has been through all smaller pools",
        "placement-search",
    ),
    PlacementClaimKind(
        "no_overlap_cpsat",
        ("CP-SAT",),
        "the pool of rectangles that do not overlap",
        "placement-search",
    ),
)

PLACEMENT_PROOFS: dict[str, PlacementProofKind] = {kind.method: kind for kind in _PROOFS}
PLACEMENT_CLAIMS: dict[str, PlacementClaimKind] = {kind.method: kind for kind in _CLAIMS}


def placement_kind_of(method: str) -> PlacementProofKind | PlacementClaimKind | None:
    """Return what is known of bounds with a name, or None of an unknown one."""
    return PLACEMENT_PROOFS.get(method) or PLACEMENT_CLAIMS.get(method)
