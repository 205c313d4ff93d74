"""Verification of pivot bounds with one side asked; see `offcert.verify.pivot_outward.check`."""

from __future__ import annotations

from offcert.proofs.kinds import PivotOutward
from offcert.questions.schedule.problem import Problem
from offcert.verify.heads.check import ends
from offcert.verify.limits import Allowance
from offcert.verify.pivot.check import MOST_LABELS
from offcert.verify.pivot_outward.check import pivot_outward_fault


def pivot_outward(
    problem: Problem, value: int, proof: PivotOutward, allowance: Allowance
) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    fault = ends(problem, proof.pivot, proof.ends, allowance)
    if fault is not None:
        return fault
    advice = proof.side, proof.limit, value, proof.free_below, proof.ends.times
    return pivot_outward_fault(
        problem,
        proof.pivot,
        *advice,
        max_labels=allowance.labels(MOST_LABELS),
        require_time=allowance.require_time,
    )
