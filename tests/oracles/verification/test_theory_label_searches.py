"""What the theory pages say of the pivot program, where other problems of the tests cannot tell.

Tensors that stay on the device come and go at any operation, so that what fits while an operation
runs may not fit in the idle time after it, and the other way round: Lemma 2 of docs/theory/pivot.md
has a case of its own for that.
"""

import random

import pytest

from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem
from offcert.verification.pivot.check import classes_of
from support.oracles.schedules import brute_force
from support.problems.claims import confirm
from support.problems.random_instances import RATES
from support.seeds import by_seeds


def nested_gaps(rng: random.Random, operations: int, count: int) -> list[tuple[int, int]]:
    """Return gaps of which none crosses another."""
    gaps: list[tuple[int, int]] = []
    for _ in range(20 * count):
        one = rng.randint(-1, operations - 3)
        two = rng.randint(one + 2, operations - 1)
        crosses = any((one < a and two < b) or (a < one and b < two) for a, b in gaps)
        if not crosses and len(gaps) < count:
            gaps.append((one, two))
    return gaps


def among_residents(seed: int) -> Problem:
    """Return a problem with nested gaps, and other tensors that come and go anywhere."""
    rng = random.Random(seed)
    count = rng.randint(4, 7)
    durations = [rng.choice((0, 1, 2, 5, 9)) for _ in range(count)]
    operations = [
        Operation(f"o{o}", ticks, rng.choice((0, 0, 3, 8))) for o, ticks in enumerate(durations)
    ]
    tensors = []
    for before, after in nested_gaps(rng, count, rng.randint(2, 4)):
        # Some are written before the gap opens, and used again after it.
        first = rng.randint(min(0, before), before)
        uses = (
            *range(first, before + 1),
            after,
            *range(after + 1, rng.randint(after, count - 1) + 1),
        )
        tensors.append(Tensor(f"t{len(tensors)}", rng.choice((2, 3, 3, 5, 8)), uses))
    for _ in range(rng.randint(1, 4)):
        first = rng.randint(0, count - 1)
        uses = tuple(range(first, rng.randint(first, count - 1) + 1))
        tensors.append(Tensor(f"n{len(tensors)}", rng.choice((1, 3, 6)), uses, evictable=False))
    trace = Trace(operations, tensors)
    least, most = trace.least_memory, trace.peak_memory
    memory = least + int(max(0, most - 1 - least) * rng.random() ** 2)
    return Problem(f"residents-{seed}", trace, Platform(memory, rng.choice(RATES)))


@pytest.mark.slow
@by_seeds(0, 90, 30)
def test_every_pivot_gives_the_optimum_among_tensors_that_come_and_go(seeds: range) -> None:
    asked = waiting = 0
    for seed in seeds:
        problem = among_residents(seed)
        trace, optimum = problem.trace, brute_force(problem)
        assert classes_of(problem) is not None
        assert optimum is not None
        if optimum == trace.compute_time:
            continue
        waiting += 1
        everything = range(len(trace.gaps))
        for pivot, demand in enumerate(trace.demand):
            if demand <= problem.platform.memory:
                continue
            asked += 1
            assert confirm(problem, pivot, optimum, optimum, optimum, once=everything)
            assert not confirm(problem, pivot, optimum, optimum, optimum + 1)
    assert waiting >= 12
    assert asked >= 17
