"""The relaxation in which a tensor may be absent from its first gap to its last without a break.

Some tensors of a network are read several times on the way, and so have several gaps: the input of
a residual block may leave while the block is computed, and again until the backward pass. What is
exact for one gap a tensor does not apply to them. With the uses between the first gap and the last
one left out, each has one; and every schedule remains one: of the transfers of such a tensor the
offload and the last prefetch stay, so that it is absent whenever it was, the link carries no more,
and the prefetch is in time as it was.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from offcert.core.errors import MethodError
from offcert.core.trace import Gap, Trace
from offcert.questions.schedule.problem import Problem


def joined_gaps(problem: Problem) -> Problem:
    """Return the problem with all gaps of each tensor joined to one; a bound on it is one on this.

    Raises
    ------
    MethodError
        If no tensor has several gaps.
    """
    trace = problem.trace
    gaps: dict[int, list[Gap]] = defaultdict(list)
    for gap in trace.gaps:
        gaps[gap.tensor].append(gap)
    several = {tensor: found for tensor, found in gaps.items() if len(found) > 1}
    if not several:
        raise MethodError("no tensor has several gaps that could be joined")
    tensors = list(trace.tensors)
    for number, found in several.items():
        uses = tensors[number].uses
        first, last = found[0].before, found[-1].after
        kept = tuple(use for use in uses if use <= first or use >= last)
        tensors[number] = replace(tensors[number], uses=kept)
    return replace(problem, network=Trace(trace.operations, tensors))
