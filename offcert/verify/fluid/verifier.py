"""Verification of fluid bounds, by multipliers and cases; see `offcert.verify.fluid.proof`."""

from __future__ import annotations

from offcert.core.problem import Problem, Transfers
from offcert.proofs.kinds import FluidProof
from offcert.verify.common.absence import least_memory, needs, whole_tensors
from offcert.verify.fluid.proof import examine
from offcert.verify.fractional.verifier import NO_SCHEDULE
from offcert.verify.limits import Allowance


def fluid_lp(problem: Problem, value: int, proof: FluidProof, allowance: Allowance) -> str | None:
    """Return None if multipliers prove the bound without cases, or what is wrong."""
    return _examined(problem, value, proof, allowance, branching=False)


def fluid_milp(problem: Problem, value: int, proof: FluidProof, allowance: Allowance) -> str | None:
    """Return None if multipliers prove the bound in every case, or what is wrong."""
    return _examined(problem, value, proof, allowance, branching=True)


def _examined(
    problem: Problem, value: int, proof: FluidProof, allowance: Allowance, *, branching: bool
) -> str | None:
    if proof.whole and problem.transfers is not Transfers.ATOMIC:
        return f"details.whole must be false with {problem.transfers} transfers"
    if least_memory(problem)[0] > problem.platform.memory:
        return NO_SCHEDULE
    amounts = whole_tensors(problem) if proof.whole else needs(problem)
    return examine(proof.proof, value, problem, amounts, branching=branching, allowance=allowance)
