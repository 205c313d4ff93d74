"""Bounds on the pool that are computed from the problem alone, and who establishes which."""

from __future__ import annotations

from offcert.core.errors import InputError
from offcert.core.placement import PlacementProblem
from offcert.core.result import Bound
from offcert.proofs.placement.registry import PLACEMENT_PROOFS
from offcert.proofs.proof import Proof
from offcert.verify.limits import Allowance
from offcert.verify.recheck import named


def recheck_pool(bound: Bound, problem: PlacementProblem, allowance: Allowance) -> str | None:
    """Establish a proved bound on a pool again; return None if it holds, or what is wrong.

    Raises
    ------
    BeyondLimitsError
        If it takes more than is allowed.
    """
    kind = PLACEMENT_PROOFS.get(bound.method)
    if kind is None:
        return "no proof is known for a bound of this kind on a pool"
    try:
        proof = kind.proof.read(bound.details)
    except InputError as error:
        return str(error)
    allowance.require_time()
    fault: str | None = named(kind.verifier)(problem, bound.value, proof, allowance)
    if fault is not None and kind.searched:
        return f"the search it names does not establish {bound.value}: {fault}"
    return fault


def load(problem: PlacementProblem, value: int, proof: Proof, allowance: Allowance) -> str | None:
    """Return what is wrong with a load: the most bytes that are taken at a time."""
    unit = problem.alignment
    # At one moment what ends goes before what begins.
    events = []
    for residence in problem.residences:
        size = -(-residence.size // unit) * unit
        events.append((residence.start, 1, size))
        events.append((residence.end, 0, -size))
    most = taken = 0
    for _, _, change in sorted(events):
        taken += change
        most = max(most, taken)
    return None if value <= most else f"at most {most} bytes are taken at a time, not {value}"
