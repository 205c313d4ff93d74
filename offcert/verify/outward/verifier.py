"""Verification of outward bounds; see `offcert.verify.outward.check`."""

from __future__ import annotations

from offcert.core.problem import Problem
from offcert.proofs.kinds import Outward
from offcert.verify.limits import Allowance
from offcert.verify.outward.check import MOST_LABELS, outward_fault


def outward(problem: Problem, value: int, proof: Outward, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    return outward_fault(
        problem,
        proof.pivot,
        value,
        proof.free_below,
        proof.windows,
        proof.splits,
        max_labels=allowance.labels(MOST_LABELS),
        max_seconds=allowance.seconds,
    )
