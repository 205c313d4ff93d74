"""Verification of lower bounds on bytes, by three arguments (docs/theory/least-memory.md)."""

from __future__ import annotations

from offcert.core.network import Network
from offcert.core.problem import Problem, Recompute
from offcert.proofs.kinds import Computed, LeastMemoryCut
from offcert.verify.common.absence import least_memory
from offcert.verify.least_memory.cut import cut_bytes
from offcert.verify.least_memory.kept import Kept
from offcert.verify.least_memory.needs import at_start, needs_of
from offcert.verify.limits import Allowance

NO_NETWORK = "the field value rests on a network, and the problem holds a trace"


def single_run(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if this is what one run, or the start, needs at least, or what is wrong."""
    network = problem.computed
    if network is None or problem.recompute is Recompute.NONE:
        found, _ = least_memory(problem)
    else:
        needs = needs_of(problem, network)
        found = max(at_start(needs), *needs.own)
    if value == found:
        return None
    return f"the document says {value}, but the computation gives {found}"


def kept(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if less than this is refuted by what would have to stay, or what is wrong."""
    network = problem.computed
    if network is None:
        return NO_NETWORK
    if Kept(network, needs_of(problem, network), value - 1, allowance).refuted:
        return None
    return f"the field value says {value}, and what has to be kept does not refute less"


def cut(problem: Problem, value: int, proof: LeastMemoryCut, allowance: Allowance) -> str | None:
    """Return None if less than this is refuted by a cut as well, or what is wrong."""
    network = problem.computed
    if network is None:
        return NO_NETWORK
    fault = _misplaced(network, proof)
    if fault is not None:
        return fault
    needs = needs_of(problem, network)
    known = Kept(network, needs, value - 1, allowance)
    allowance.require_time()
    if known.refuted:
        return None
    found = cut_bytes(problem, network, needs, known.last_again, proof)
    if found > value - 1:
        return None
    return (
        f"details.computation {proof.computation} and its prices establish {float(found):g} bytes "
        f"where {value} are claimed"
    )


def _misplaced(network: Network, proof: LeastMemoryCut) -> str | None:
    if proof.computation < len(network):
        return None
    return (
        f"details.computation must be below the number of computations, {len(network)}, "
        f"not {proof.computation}"
    )
