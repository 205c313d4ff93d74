"""Verification of heads and tails with whole tensors; see `offcert.verify.heads.check`."""

from __future__ import annotations

from offcert.core.problem import Problem
from offcert.proofs.kinds import AtomicHeads, Ends
from offcert.verify.heads.check import MOST_LABELS, ends_fault, heads_fault
from offcert.verify.limits import Allowance


def atomic_heads(
    problem: Problem, value: int, proof: AtomicHeads, allowance: Allowance
) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    advice = proof.times, proof.counted, proof.units
    return heads_fault(problem, proof.pivot, *advice, value, allowance.labels(MOST_LABELS))


def ends(problem: Problem, pivot: int, proof: Ends, allowance: Allowance) -> str | None:
    """Return None if no front and no back of a schedule is shorter, or why that is not shown."""
    advice = proof.times, proof.counted, proof.units
    labels = allowance.labels(MOST_LABELS)
    return ends_fault(problem, pivot, *advice, labels, place="details.ends")
