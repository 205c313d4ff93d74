"""Exact sums where one tensor leaves and another returns while the pivot runs."""

import random
from dataclasses import replace

import pytest

from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.exact_sums import exact_sums_bound
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.verification.findings import recheck
from support.oracles.schedules import brute_force
from support.seeds import by_seeds


def swapped() -> Problem:
    """While operation 1 runs, z leaves in 4 ticks, and then `a` returns in 3: just in time."""
    rows = [(3, 0), (7, 1), (4, 0), (1, 0)]
    trace = Trace(
        [Operation(f"o{o}", *row) for o, row in enumerate(rows)],
        [Tensor("a", 3, (-1, 2)), Tensor("z", 4, (0, 3))],
    )
    return Problem("swapped", trace, Platform(7, 1))


def test_the_schedule_that_swaps() -> None:
    transfers = [
        Transfer(Kind.OFFLOAD, 0, 0, 3),
        Transfer(Kind.OFFLOAD, 1, 3, 7),
        Transfer(Kind.PREFETCH, 0, 7, 10),
        Transfer(Kind.PREFETCH, 1, 10, 14),
    ]
    schedule = Schedule([0, 3, 10, 14], [3, 10, 14, 15], transfers)
    assert check(swapped(), schedule) == []
    assert schedule.makespan == brute_force(swapped()) == swapped().trace.compute_time == 15


def test_no_bound_exceeds_it() -> None:
    bound = exact_sums_bound(swapped())
    assert bound is not None
    assert bound.value == 15
    assert recheck(bound, swapped()) is None
    for value in (16, 18):
        fault = recheck(replace(bound, value=value), swapped())
        assert "absent at its start or end, it shows" in str(fault)


def with_long_operations(seed: int) -> Problem | None:
    """Tensors have the time to change places while an operation runs."""
    rng = random.Random(seed)
    count = rng.randint(3, 6)
    operations = [
        Operation(f"o{o}", rng.choice((1, 2, 5, 8, 12)), rng.choice((0, 0, 1, 4)))
        for o in range(count)
    ]
    tensors = [
        Tensor(f"t{t}", rng.randint(1, 6), tuple(sorted(rng.sample(range(-1, count), 2))))
        for t in range(rng.randint(2, 4))
    ]
    trace = Trace(operations, tensors)
    if trace.least_memory >= trace.peak_memory:
        return None
    memory = rng.randint(trace.least_memory, trace.peak_memory - 1)
    link = rng.choice((Link.SIMPLEX, Link.SIMPLEX, Link.DUPLEX))
    return Problem(f"long-{seed}", trace, Platform(memory, rng.choice((1, 2)), link))


@pytest.mark.slow
@by_seeds(0, 600, 30)
def test_no_bound_exceeds_the_optimum_where_tensors_change_places(seeds: range) -> None:
    met = 0
    for seed in seeds:
        problem = with_long_operations(seed)
        bound = None if problem is None else exact_sums_bound(problem)
        if problem is None or bound is None:
            continue
        optimum = brute_force(problem)
        assert optimum is not None
        assert bound.value <= optimum, seed
        assert recheck(bound, problem) is None, seed
        assert recheck(replace(bound, value=optimum + 1), problem) is not None, seed
        met += bound.value == optimum > problem.trace.compute_time
    assert met >= 6
