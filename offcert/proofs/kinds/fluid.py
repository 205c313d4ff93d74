"""Bounds by the interruptible problem: multipliers, by cases or not."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.forms import FLAG, TEXT, formed
from offcert.proofs.proof import ALL, WHOLE_OR_PAUSING, ClaimKind, Proof, ProofKind


@dataclass(frozen=True, kw_only=True)
class FluidProof(Proof):
    """Multipliers of a linear program, and a case distinction over gaps.

    Attributes
    ----------
    whole : bool
        Whether what must be absent is rounded up to what whole tensors make up.
    proof : str
        Multipliers and tree, packed; see `offcert.proofs.fluid_document`.
    """

    whole: bool = formed(FLAG)
    proof: str = formed(TEXT)


PROOFS = (
    ProofKind(
        "fluid-lp",
        FluidProof,
        "fluid.verifier:fluid_lp",
        "linear relaxation of the interruptible problem, by its multipliers",
        page="fluid",
        families=("HiGHS",),
        transfers=ALL,
    ),
    ProofKind(
        "fluid-milp",
        FluidProof,
        "fluid.verifier:fluid_milp",
        "interruptible problem, tensors whole or not at all, by cases with multipliers",
        page="fluid",
        families=("HiGHS",),
        transfers=WHOLE_OR_PAUSING,
    ),
)
CLAIMS = (
    ClaimKind(
        "fluid-exact",
        ("HiGHS",),
        "interruptible or fractional problem, exactly; a bound for whole tensors",
        page="fluid",
        transfers=ALL,
    ),
)
