"""The pieces of a step between which nothing is away, for verification.

A *pause* of a tensor lies between two of its uses that have other operations between them; during a
pause the tensor may be away. Take the moment before an operation such that no pause spans it, and
no tensor has pauses on both sides of it. A tensor leaves after the use that begins its pause, and
is back before the use that ends it. So all transfers for earlier pauses happen before that moment,
and all for later ones after it; and no copy on the host serves pauses on both sides, as these are
of different tensors. What a schedule does between two such moments is therefore a schedule of that
piece alone, and takes at least the piece's fractional optimum. These times do not overlap, so the
sum of the optima is a bound on the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from offcert.core.trace import Tensor, Trace
from offcert.questions.schedule.problem import Problem


def pieces(problem: Problem) -> Iterator[Problem]:
    """Yield the pieces between all moments at which nothing can be away, in their order."""
    trace = problem.trace
    spans = []
    for tensor in trace.tensors:
        pauses = [pair for pair in pairwise(tensor.uses) if pair[1] - pair[0] > 1]
        if pauses and tensor.evictable and tensor.size:
            spans.append((pauses[0][0], pauses[-1][1]))
    begins, beyond = [], -1
    waiting = sorted(spans)[::-1]
    for index in range(len(trace)):
        # All pauses that begin before this operation, up to where the last of them ends.
        while waiting and waiting[-1][0] < index:
            beyond = max(beyond, waiting.pop()[1])
        if index == 0 or beyond < index:
            begins.append(index)
    for begin, end in pairwise([*begins, len(trace)]):
        yield _alone(problem, begin, end)


def _alone(problem: Problem, begin: int, end: int) -> Problem:
    """Return the problem of a stretch of operations, with all tensors that are there meanwhile."""
    trace = problem.trace
    tensors = []
    for tensor in trace.tensors:
        if tensor.uses[0] >= end or tensor.uses[-1] < begin:
            continue
        uses = {use - begin for use in tensor.uses if begin <= use < end}
        if tensor.uses[0] < begin:
            uses.add(-1)
        if tensor.uses[-1] >= end:
            uses.add(end - begin - 1)
        # What no absence spans is there all the while, as if it could not leave.
        tensors.append(Tensor(tensor.name, tensor.size, tuple(sorted(uses)), tensor.evictable))
    return replace(problem, network=Trace(trace.operations[begin:end], tensors), source=None)
