"""Bounds on the problem whose gaps are joined, for verification; see `recheck`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from offcert.core.problem import Problem
from offcert.core.trace import Tensor, Trace


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
