"""Bounds of both sides of a cut followed outward, established again as the advice divides them."""

from __future__ import annotations

import math

from offcert.core.platform import Link
from offcert.core.threads import cores
from offcert.proofs.kinds.labels import Outward
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.limits import Allowance, TooLargeError
from offcert.verification.outward.sets import FaultError, order_fault
from offcert.verification.outward.tables import cut_at
from offcert.verification.outward.walk import Budget, Walk

# The largest number in the arrays. Derived: sums stay inside 64 bits.
_LARGEST = 2**61
# Labels to be searched in all, unless the caller wants less. Arbitrary.
MOST_LABELS = 40_000_000


def outward(problem: Problem, value: int, proof: Outward, allowance: Allowance) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    labels = allowance.labels(MOST_LABELS)
    return outward_fault(problem, value, proof, max_labels=labels, max_seconds=allowance.seconds)


def outward_fault(
    problem: Problem,
    claimed: int,
    proof: Outward,
    *,
    max_labels: int = MOST_LABELS,
    max_seconds: float = math.inf,
    workers: int = 0,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or where that fails to be shown.

    Parameters
    ----------
    problem : Problem
        Any; it is a fault if transfers are not atomic or the link is duplex.
    claimed : int
        The bound, in ticks.
    proof : Outward
        The advice.
    max_labels, max_seconds
        How much to search at most, and for how long.
    workers : int
        Threads, or one for each processor.

    Raises
    ------
    BeyondLimitsError
        If the search is too large, or the time is over.
    """
    pivot, free_below, windows = proof.pivot, proof.free_below, proof.windows
    trace = problem.trace
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    if problem.transfers is not Transfers.ATOMIC:
        return f"nothing of the kind holds with {problem.transfers} transfers"
    if problem.platform.link is not Link.SIMPLEX:
        return "nothing of the kind holds with a duplex link"
    if not 0 <= pivot < len(trace):
        return f"details.pivot must be below the number of operations, {len(trace)}, not {pivot}"
    unordered = order_fault("free_below", free_below) or order_fault("windows", windows)
    if unordered is not None:
        return unordered
    try:
        cuts = [cut_at(problem, pivot, least) for least in free_below]
        if claimed >= _LARGEST:
            raise TooLargeError
        if min(cut.need for cut in cuts) <= 0:
            return (
                "details.pivot must be an operation during which some tensor of at least "
                f"{min(free_below)} bytes has to be absent, not {pivot}"
            )
        budget = Budget(max_labels, max_seconds)
        Walk(cuts, windows, claimed - 1, budget).follow(proof.splits, workers or cores())
    except TooLargeError:
        return "its numbers are too large for the search"
    except FaultError as error:
        return str(error)
    return None
