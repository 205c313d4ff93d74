"""Steps of several passes, between which nothing can be away."""

from __future__ import annotations

import random
from dataclasses import replace

from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem
from support.problems.random_instances import mixed_problem


def passes(seed: int, same: bool) -> Problem:
    """Return two or three traces one after the other, with a tensor that is there all the while."""
    rng = random.Random(seed)
    parts = [mixed_problem(seed + (0 if same else 1000 * n), 2) for n in range(rng.choice((2, 3)))]
    operations: list[Operation] = []
    tensors: list[Tensor] = []
    for part in parts:
        shift = len(operations)
        operations += part.trace.operations
        for tensor in part.trace.tensors:
            # What was there at the start is made by the first operation.
            uses = sorted({max(0, use) + shift for use in tensor.uses})
            tensors.append(replace(tensor, uses=tuple(uses)))
    kept = rng.randint(0, 5)
    tensors.append(Tensor("kept", kept, (-1, len(operations) - 1), evictable=False))
    trace = Trace(operations, tensors)
    memory = rng.randint(trace.least_memory, trace.peak_memory)
    return Problem("passes", trace, replace(parts[0].platform, memory=memory))
