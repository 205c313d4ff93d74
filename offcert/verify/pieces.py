"""The pieces of a step between which nothing is away, for verification.

Take a moment between two operations that no pause of a tensor spans (it would be used on both sides
of the moment, not right before and after it), and on one side of which only each tensor with
several pauses has them. What leaves in a pause leaves after the use that begins it, and is back
before the use that ends it. So all transfers that serve pauses before the moment lie before it, and
those of later ones after it; and a copy on the host that a later pause could use again is of no
tensor that left before. Cut any schedule at the starts of the operations that begin pieces: what
lies between two cuts is a schedule of that piece alone, within what the others leave of the memory.
Its length is at least the piece's fractional optimum, and at least the computing in it.
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
    """Return what runs from one operation up to another, with all that is there meanwhile."""
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
