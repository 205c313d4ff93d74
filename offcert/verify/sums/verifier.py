"""Verification of bounds from exact sums; see `offcert.verify.sums.check`."""

from __future__ import annotations

from offcert.core.problem import Problem
from offcert.proofs.kinds import ExactSums
from offcert.verify.common.absence import least_memory
from offcert.verify.fractional.verifier import NO_SCHEDULE
from offcert.verify.limits import Allowance
from offcert.verify.sums.check import sums_fault


def exact_sums(problem: Problem, value: int, proof: ExactSums, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    if proof.pivot >= len(problem.trace):
        return f"details.pivot must be an operation, not {proof.pivot}"
    if least_memory(problem)[0] > problem.platform.memory:
        return NO_SCHEDULE
    return sums_fault(problem, proof.pivot, proof.smallest, value)
