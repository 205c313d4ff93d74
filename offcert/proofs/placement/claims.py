"""Bounds on pools as their finders state them: proved, or somebody's word."""

from __future__ import annotations

from offcert.core.result import Bound
from offcert.proofs.claims import claimed as claimed
from offcert.proofs.claims import searched as searched
from offcert.proofs.placement.registry import PLACEMENT_PROOFS
from offcert.proofs.proof import Proof


def proved(method: str, value: int, proof: Proof) -> Bound:
    """Return a bound of so many bytes that verification establishes again."""
    return PLACEMENT_PROOFS[method].bound(value, proof)
