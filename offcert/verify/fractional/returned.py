"""The problem without returns that leave the device nothing else to do, for verification."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.trace import Tensor, Trace
from offcert.verify.common.absence import absences, needs


def with_returned_apart(problem: Problem) -> tuple[Problem, int]:
    """Return the problem in which tensors with forced returns are two each, and the ticks cut out.

    Take the last pause of a tensor that has several, and the last operation of that pause, *the
    strait*. If all other tensors that may be absent there are not enough, this one is away in every
    schedule while the strait runs. It takes its memory again when the strait has ended, at the
    earliest, and is back before the next operation starts, at the latest: that is the one that ends
    the pause. So meanwhile no operation runs, and on a simplex link no other transfer. Cut these
    ticks out of a schedule. What is left keeps its order, and has the same bytes on the device as
    before, where the tensor ends with the use before its pause and a new one, which never leaves,
    begins with the use after it. It is a schedule of the problem returned, shorter by those ticks.
    Straits differ from each other or share no time, as on a simplex link returns do not overlap.
    """
    trace = problem.trace
    required = needs(problem)
    removable = [0] * len(trace)
    for each in absences(trace):
        for operation in range(each.before + 1, each.after):
            removable[operation] += each.size
    rate = problem.platform.rate(Kind.PREFETCH)
    tensors: list[Tensor] = []
    added: list[Tensor] = []
    ticks = 0
    for tensor in trace.tensors:
        pauses = [(one, two) for one, two in pairwise(tensor.uses) if two - one > 1]
        if tensor.evictable and tensor.size and len(pauses) > 1:
            leaves, returns = pauses[-1]
            if removable[returns - 1] - tensor.size < required[returns - 1]:
                ticks += math.ceil(tensor.size / rate)
                later = tuple(use for use in tensor.uses if use >= returns)
                added.append(Tensor(tensor.name, tensor.size, later, evictable=False))
                earlier = tuple(use for use in tensor.uses if use <= leaves)
                tensors.append(replace(tensor, uses=earlier))
                continue
        tensors.append(tensor)
    return replace(problem, network=Trace(trace.operations, [*tensors, *added])), ticks
