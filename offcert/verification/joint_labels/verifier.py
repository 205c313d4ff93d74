"""Verification of exact joint bounds, in ticks and in bytes, and that nothing can be executed."""

from __future__ import annotations

from offcert.proofs.kinds.computed import Computed
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.verification.joint_labels.contents import Contents
from offcert.verification.joint_labels.search import JointLabels
from offcert.verification.limits import Allowance


def joint_labels(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if no execution is shorter than `value` ticks, or the fault."""
    fault = beyond_scope(problem)
    if fault is not None:
        return fault
    found = JointLabels(Contents(problem), problem.platform.memory, value).shorter(allowance)
    if found is not None:
        return f"the document says {value}, but an execution may take {found}"
    return None


def joint_labels_memory(
    problem: Problem, value: int, proof: Computed, allowance: Allowance
) -> str | None:
    """Return None if within one byte less no execution ends by the deadline, or the fault.

    Without a deadline, if there is none at all.
    """
    fault = beyond_scope(problem, Minimise.MEMORY)
    if fault is not None:
        return fault
    deadline = problem.deadline
    contents = Contents(problem, timed=deadline is not None)
    limit = None if deadline is None else deadline + 1
    if JointLabels(contents, value - 1, limit).shorter(allowance) is not None:
        return f"the document says {value}, but within {value - 1} something can be executed"
    return None


def nothing_fits(problem: Problem, memory: int, allowance: Allowance) -> str | None:
    """Return None if nothing can be executed within so many bytes, or the fault.

    Raises
    ------
    BeyondLimitsError
        If that is not known when time or memory run out.
    """
    fault = beyond_scope(problem)
    if fault is not None:
        return fault
    search = JointLabels(Contents(problem, timed=False), memory, None)
    if search.shorter(allowance) is not None:
        return f"within {memory} something can be executed"
    return None


def beyond_scope(problem: Problem, minimise: Minimise = Minimise.TIME) -> str | None:
    """Return the reason why the search establishes nothing about a problem, or None.

    Parameters
    ----------
    problem : Problem
        Any problem.
    minimise : Minimise
        The objective that the bound is about: ticks or bytes.
    """
    if problem.computed is None:
        return "nothing is known of what is computed from what"
    if problem.recompute is Recompute.NONE:
        return "it is about problems in which computations may run again"
    if problem.minimise is not minimise:
        return f"it is about the least {minimise}, not the least {problem.minimise}"
    if problem.offload and problem.transfers is not Transfers.ATOMIC:
        return f"it is about atomic transfers, not {problem.transfers} ones"
    return None
