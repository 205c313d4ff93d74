"""Kinds of proof for bounds on a pool of addresses: one frozen dataclass each.

`offcert.proofs.placement.registry` says under which names bounds with these proofs stand in
documents. Numbers of residences are indices into those of the problem.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcert.proofs.forms import integers
from offcert.proofs.kinds import Computed as Computed
from offcert.proofs.proof import Proof


@dataclass(frozen=True, kw_only=True)
class InfeasibleSubset(Proof):
    """Residences that do not fit into any pool smaller than the bound.

    Attributes
    ----------
    residences : tuple of int
        Which they are.
    """

    residences: tuple[int, ...] = integers(0)
