"""Verification of heads and tails that move the same; see `offcert.verify.matched.check`."""

from __future__ import annotations

from offcert.core.problem import Problem
from offcert.proofs.kinds import MatchedHeads
from offcert.verify.limits import Allowance
from offcert.verify.matched.check import MOST_LABELS, matched_fault
from offcert.verify.matched.joined import with_joined_gaps


def matched_heads(
    problem: Problem, value: int, proof: MatchedHeads, allowance: Allowance
) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    return matched_fault(
        problem,
        proof.pivot,
        proof.times,
        proof.counted,
        proof.units,
        value,
        unit=proof.unit,
        free_below=proof.free_below,
        levels=proof.levels,
        spare=proof.spare,
        max_labels=allowance.labels(MOST_LABELS),
        require_time=allowance.require_time,
    )


def matched_heads_joined(
    problem: Problem, value: int, proof: MatchedHeads, allowance: Allowance
) -> str | None:
    """Return None if no schedule is shorter even with one gap a tensor, or why it is not shown."""
    return matched_heads(with_joined_gaps(problem), value, proof, allowance)
