"""The registry of bounds: under which name each stands in a certificate, and what supports it.

Everything that treats kinds of bounds differently asks here: the search when it writes a bound,
verification when it reads one, attestation, the list of methods, tests and documentation. A new
kind of proof is a dataclass and a row in a file of `offcert.proofs.kinds`, and a verifier.
"""

from __future__ import annotations

from offcert.proofs.kind import ClaimKind, ProofKind
from offcert.proofs.kinds import computed, fluid, joint, labels, memory, models

_PROOFS = (*computed.PROOFS, *fluid.PROOFS, *labels.PROOFS, *joint.PROOFS, *memory.PROOFS)
_CLAIMS = (*fluid.CLAIMS, *models.CLAIMS, *joint.CLAIMS, *models.RECOMPUTATION)

PROOFS: dict[str, ProofKind] = {kind.method: kind for kind in _PROOFS}
CLAIMS: dict[str, ClaimKind] = {kind.method: kind for kind in _CLAIMS}

# The solver named where a search of ours claims a bound, as verification could not search as much.
OWN = "offcert"


def kind_of(method: str) -> ProofKind | ClaimKind | None:
    """Return the row of the registry for bounds with a name, or None if the name is unknown."""
    return PROOFS.get(method) or CLAIMS.get(method)
