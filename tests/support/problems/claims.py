"""Claims of label searches, said in one line, for tests of what verifies them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from offcert.proofs.kinds.labels import Heads, Pivot
from offcert.questions.schedule.problem import Problem
from offcert.verification.ends.check import MOST_LABELS, heads_fault
from offcert.verification.limits import BeyondLimitsError
from offcert.verification.pivot.check import pivot_fault

Sizes = Sequence[int]


def advice(
    pivot: int,
    times: Sequence[int],
    counted: Sequence[Sizes] = ((), ()),
    units: Sequence[int] = (1, 1),
    **finer: Any,
) -> Heads:
    """Return a proof: head and tail, what they count and their units, and what joins sides."""
    parts: dict[str, Any] = {
        f"{side}{part}": values[place]
        for place, side in enumerate(("head", "tail"))
        for part, values in (("", times), ("_counted", counted), ("_unit", units))
    }
    return Heads(pivot=pivot, **parts, **finer)


def fault_of(
    problem: Problem,
    pivot: int,
    times: Sequence[int],
    counted: Sequence[Sizes],
    units: Sequence[int],
    claimed: int,
    *,
    max_labels: int = MOST_LABELS,
    **finer: Any,
) -> str | None:
    """Return None if no schedule is shorter than what is claimed, or the fault of the advice."""
    return heads_fault(problem, claimed, advice(pivot, times, counted, units, **finer), max_labels)


def confirms(
    problem: Problem,
    pivot: int,
    head: int,
    tail: int,
    claimed: int,
    *,
    counted: Sequence[Sizes] = ((), ()),
    units: Sequence[int] = (1, 1),
    max_labels: int = MOST_LABELS,
    **finer: Any,
) -> bool:
    """Return whether a claim is confirmed; false if that takes too many labels, too."""
    proof = advice(pivot, (head, tail), counted, units, **finer)
    try:
        return heads_fault(problem, claimed, proof, max_labels) is None
    except BeyondLimitsError:
        return False


def confirm(
    problem: Problem,
    pivot: int,
    front_limit: int,
    back_limit: int,
    claimed: int,
    *,
    once: Collection[int] = (),
    max_labels: int = MOST_LABELS,
) -> bool:
    """Return whether a claim of the pivot program is confirmed, with no ends of the sides."""
    limits: dict[str, Any] = {"front_limit": front_limit, "back_limit": back_limit}
    proof = Pivot(pivot=pivot, **limits, once=tuple(once))
    try:
        return pivot_fault(problem, claimed, proof, max_labels) is None
    except BeyondLimitsError:
        return False
