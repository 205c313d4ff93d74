"""Bounds on the pool that are computed from the problem alone."""

from __future__ import annotations

from offcert.core.placement import PlacementProblem
from offcert.proofs.proof import Proof
from offcert.verify.limits import Allowance


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
