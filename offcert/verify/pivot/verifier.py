"""Verification of pivot bounds; see `offcert.verify.pivot.check`."""

from __future__ import annotations

from offcert.core.problem import Problem
from offcert.proofs.kinds import Pivot
from offcert.verify.heads.verifier import ends
from offcert.verify.limits import Allowance
from offcert.verify.pivot.check import MOST_LABELS, pivot_fault


def pivot(problem: Problem, value: int, proof: Pivot, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    times = (0, 0)
    if proof.ends is not None:
        fault = ends(problem, proof.pivot, proof.ends, allowance)
        if fault is not None:
            return fault
        times = proof.ends.times
    limits = proof.front_limit, proof.back_limit
    labels = allowance.labels(MOST_LABELS, searches=2)
    return pivot_fault(problem, proof.pivot, limits, value, proof.once, labels, times)
