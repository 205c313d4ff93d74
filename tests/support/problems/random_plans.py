"""Random plans, sensible or not: any of them either has one earliest schedule or gets stuck."""

from __future__ import annotations

import random
from dataclasses import replace

from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Trace
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem


def random_plan(rng: random.Random, trace: Trace) -> Plan:
    """Draw which gaps are evicted, where each prefetch takes its memory, and who goes first."""
    gaps_of: dict[int, list[int]] = {}
    for number, gap in enumerate(trace.gaps):
        gaps_of.setdefault(gap.tensor, []).append(number)
    moves: list[tuple[float, Move]] = []
    for tensor, numbers in gaps_of.items():
        chosen = [number for number in numbers if rng.random() < 0.5]
        if not chosen:
            continue
        first = trace.gaps[chosen[0]]
        written = max(trace.tensors[tensor].uses[0], 0)
        when = written + 0.8 * rng.random() * (first.after - written)
        moves.append((when, Move(Kind.OFFLOAD, chosen[0], first.after - 1)))
        for number in chosen:
            gap = trace.gaps[number]
            before = rng.randint(max(gap.before + 1, 0), gap.after)
            when = max(before - rng.random() / 2, when + 0.01)
            moves.append((when, Move(Kind.PREFETCH, number, before)))
    return Plan(move for _, move in sorted(moves, key=lambda item: item[0]))


def with_durations(problem: Problem, durations: list[int], platform: Platform) -> Problem:
    """Return a problem of a trace with other durations, elsewhere."""
    trace = problem.trace
    operations = (
        Operation(o.name, duration, o.workspace)
        for o, duration in zip(trace.operations, durations, strict=True)
    )
    return replace(problem, network=Trace(operations, trace.tensors), platform=platform)
