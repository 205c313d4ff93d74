"""Seeded random problems as long as networks seen operator by operator, made in linear time."""

from __future__ import annotations

import random
from fractions import Fraction

from offcert.core.chain import Chain
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem

_LARGEST = 1 << 24


def _size(rng: random.Random) -> int:
    """Sizes repeat, as in networks, and share factors; some are odd."""
    if rng.random() < 0.1:
        return rng.randint(1, _LARGEST)
    return rng.choice((1, 3, 5, 7, 49, 56)) << rng.randint(8, 20)


def nested_trace(rng: random.Random, operations: int, saved: int) -> Trace:
    """A forward phase that saves, a backward phase that reads it in reverse; temporaries."""
    half = operations // 2
    rows = [
        Operation(f"o{i}", rng.choice((0, 1, 1000, rng.randint(1, 100_000))), _workspace(rng))
        for i in range(2 * half)
    ]
    tensors = []
    for number in range(saved):
        writer = number * half // saved
        # Read by the next operation too, and some more than once on the way back.
        uses = {writer, writer + 1, 2 * half - 1 - writer}
        if rng.random() < 0.1:
            uses.add(rng.randint(half, 2 * half - 1 - writer))
        tensors.append(Tensor(f"x{number}", _size(rng), tuple(sorted(uses))))
    for index in range(0, 2 * half - 1, 2):
        tensors.append(Tensor(f"y{index}", _size(rng), (index, index + 1), evictable=False))
    return Trace(rows, tensors)


def loose_trace(rng: random.Random, operations: int, tensors: int) -> Trace:
    """Tensors with any uses: several gaps each, not nested, some resident at the start."""
    rows = [Operation(f"o{i}", rng.randint(0, 100_000), _workspace(rng)) for i in range(operations)]
    made = []
    for number in range(tensors):
        first = rng.randint(-1, operations - 2) if rng.random() < 0.99 else -1
        uses = {first}
        while len(uses) < 2 or rng.random() < 0.4:
            uses.add(rng.randint(first + 1, operations - 1))
        made.append(Tensor(f"t{number}", _size(rng), tuple(sorted(uses)), rng.random() < 0.95))
    return Trace(rows, made)


def _workspace(rng: random.Random) -> int:
    return _size(rng) if rng.random() < 0.1 else 0


def long_chain(rng: random.Random, stages: int, longest: int = 100_000) -> Chain:
    """A chain whose sizes repeat, with gradients; its longest forward has so many ticks."""
    forward = [rng.randint(1, longest) for _ in range(stages)]
    sizes = [_size(rng) for _ in range(stages + 1)]
    return Chain(forward, [2 * time for time in forward], sizes, [size // 2 for size in sizes])


def long_problem(
    seed: int,
    operations: int = 10_000,
    saved: int = 5_000,
    *,
    nested: bool = True,
    link: Link = Link.SIMPLEX,
    memory: Fraction = Fraction(3, 10),
) -> Problem:
    """Put a long trace on a platform on which moving everything takes as long as computing.

    Parameters
    ----------
    memory : Fraction
        How far the limit is from the least memory to the peak.
    """
    rng = random.Random(seed)
    make = nested_trace if nested else loose_trace
    trace = make(rng, operations, saved)
    moved = 2 * sum(trace.gap_size(gap) for gap in range(len(trace.gaps)))
    rate = Fraction(moved, max(1, trace.compute_time)).limit_denominator(1000)
    name = f"{make.__name__}-{operations}-{saved}-{seed}"
    problem = Problem(name, trace, Platform(10**15, max(rate, Fraction(1, 1000)), link))
    return problem.with_memory(problem.memory_at(memory))
