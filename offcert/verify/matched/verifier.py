"""Verification of heads and tails that move the same; see `offcert.verify.matched.check`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from offcert.core.trace import Tensor, Trace
from offcert.proofs.kinds.labels import MatchedHeads
from offcert.questions.schedule.problem import Problem
from offcert.verify.limits import Allowance
from offcert.verify.matched.check import MOST_LABELS, matched_fault


def with_joined_gaps(problem: Problem) -> Problem:
    """Return the problem in which a tensor with gaps may be absent from the first to the last.

    Take any schedule of the problem, and leave out all prefetches of each tensor but the last. The
    tensor is then absent at least whenever it was before, the offload is as it was, the prefetch
    starts after it and ends before the last gap does, and nothing was added to the link. So this is
    a schedule of the problem returned, of the same length.
    """
    trace = problem.trace
    return replace(
        problem, network=Trace(trace.operations, [_joined(tensor) for tensor in trace.tensors])
    )


def _joined(tensor: Tensor) -> Tensor:
    pauses = [(one, two) for one, two in pairwise(tensor.uses) if two - one > 1]
    if not tensor.evictable or not pauses:
        return tensor
    leaves, returns = pauses[0][0], pauses[-1][1]
    uses = [use for use in tensor.uses if not leaves < use < returns]
    return replace(tensor, uses=tuple(uses))


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
