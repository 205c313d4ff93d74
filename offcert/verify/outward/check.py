"""Verification of outward bounds; see `offcert.verify.outward.check`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from offcert.core.platform import Link
from offcert.core.threads import cores
from offcert.proofs.kinds.labels import Outward
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verify.limits import Allowance, BeyondLimitsError, TooLargeError
from offcert.verify.outward.sets import FaultError, order_fault
from offcert.verify.outward.tables import cut_at
from offcert.verify.outward.walk import Budget, Walk

# The largest number in the arrays. Derived: sums stay inside 64 bits.
_LARGEST = 2**61
# Labels to be searched in all, unless the caller wants less. Arbitrary.
MOST_LABELS = 40_000_000

Advice = Sequence[Sequence[Any]]


def confirm_outward(
    problem: Problem,
    pivot: int,
    claimed: int,
    *,
    free_below: Sequence[int] = (1,),
    windows: Sequence[int] = (1,),
    splits: Advice = (),
    max_labels: int = MOST_LABELS,
) -> bool:
    """Return whether no schedule of `problem` is shorter than `claimed` ticks.

    Parameters
    ----------
    problem : Problem
        Atomic transfers over a simplex link, any trace; false for others.
    pivot : int
        The operation at which schedules are cut.
    claimed : int
        The bound, in ticks.
    free_below : sequence of int
        Bytes below which tensors are absent at no cost, decreasing.
    windows : sequence of int
        A side is followed until this part of the bytes that the pivot needs is back: 20 is a
        twentieth.
    splits : sequence of sequence
        How parts are divided, each before what it is divided into: ``()`` not at all,
        ``("class", bytes, count)``, ``("bytes", least)``, ``("ticks", least)``, ``("sets", counts,
        ...)``, ``("window",)``, ``("detail", parts)``; the last goes back to the first window.
    max_labels : int
        How much to search at most.

    Returns
    -------
    bool
        False if the bound is wrong, the advice is insufficient, or the search is too large.
    """
    advice = free_below, windows, splits
    try:
        return outward_fault(problem, pivot, claimed, *advice, max_labels=max_labels) is None
    except BeyondLimitsError:
        return False


def outward_fault(
    problem: Problem,
    pivot: int,
    claimed: int,
    free_below: Sequence[int],
    windows: Sequence[int],
    splits: Advice,
    *,
    max_labels: int = MOST_LABELS,
    max_seconds: float = math.inf,
    workers: int = 0,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or where that fails to be shown.

    Parameters are those of `confirm_outward`. It gives up after `max_seconds` as well, and uses
    `workers` threads, or one for each processor.

    Raises
    ------
    BeyondLimitsError
        If the search is too large, or the time is over.
    """
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
        Walk(cuts, windows, claimed - 1, budget).follow(splits, workers or cores())
    except TooLargeError:
        return "its numbers are too large for the search"
    except FaultError as error:
        return str(error)
    return None


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
