"""Verification of joint bounds by their multipliers; see `offcert.verify.joint.model`."""

from __future__ import annotations

from offcert.core.errors import InputError
from offcert.core.problem import Problem, Transfers
from offcert.proofs.fluid_document import TooLongError
from offcert.proofs.joint_document import read
from offcert.proofs.kinds import JointProof
from offcert.verify.joint.cases import least
from offcert.verify.joint.grid import Cuts
from offcert.verify.joint.model import JointModel
from offcert.verify.joint.room import rooms
from offcert.verify.joint.states import States
from offcert.verify.limits import Allowance, BeyondLimitsError

# Spans times computations: more than any proof of ours has.
_LARGEST = 20_000_000


def joint_lp(problem: Problem, value: int, proof: JointProof, allowance: Allowance) -> str | None:
    """Return None if multipliers prove the bound, or what is wrong."""
    try:
        found = proved_by(problem, proof, allowance)
    except InputError as error:
        return str(error)
    if found < value:
        return f"the document says {value}, but its proof gives {found}"
    return None


def proved_by(problem: Problem, proof: JointProof, allowance: Allowance) -> int:
    """Return the ticks that multipliers prove to be necessary, whatever problem they were made for.

    Raises
    ------
    InputError
        If they prove nothing about this problem.
    BeyondLimitsError
        If it takes more than is allowed.
    """
    network = problem.computed
    if network is None:
        raise InputError("nothing is known of what is computed from what")
    if proof.whole and problem.offload and problem.transfers is not Transfers.ATOMIC:
        raise InputError(f"details.whole must be false with {problem.transfers} transfers")
    try:
        if (len(proof.moments) + len(proof.spans) + 1) * len(network) > _LARGEST:
            raise InputError("details.moments and details.spans are too many")
        cuts = Cuts(proof.moments, proof.spans, len(network))
        cases = read(proof.proof, allowance.limits.document)
        allowance.require_time()
        states = States(network, problem.offload)
        room = rooms(states, cuts, problem.platform.memory, proof.whole)
        return least(JointModel(problem, states, cuts, room), cases, allowance)
    except TooLongError as error:
        raise BeyondLimitsError(str(error)) from None
