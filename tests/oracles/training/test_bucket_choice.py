"""The choice of sizes that get a plan, beside all choices there are."""

from __future__ import annotations

import itertools
import random

import pytest

from offcert.core.errors import InputError
from offcert.training.buckets import cheapest
from support.seeds import by_seeds


def brute(times, counts, most):
    """Return the least ticks, and the fewest plans with which they are reached."""
    last = len(times) - 1
    found = []
    for size in range(most):
        for others in itertools.combinations(range(last), size):
            plans = [*others, last]
            served = [times[min(p for p in plans if p >= step)][step] for step in range(last + 1)]
            if None not in served:
                ticks = sum(n * time for n, time in zip(counts, served, strict=True))
                found.append((ticks, len(plans)))
    return min(found, default=None)


@by_seeds(0, 50)
def test_no_other_sizes_take_less_time(seeds):
    for seed in seeds:
        compare(random.Random(seed))


def compare(rng):
    size = rng.randint(1, 7)
    times = [
        [None if rng.random() < 0.15 else rng.randint(1, 30) for _ in range(plan + 1)]
        for plan in range(size)
    ]
    counts = [rng.randint(0, 5) for _ in range(size)]
    most = rng.randint(1, 4)
    expected = brute(times, counts, most)
    if expected is None:
        with pytest.raises(InputError):
            cheapest(times, counts, most)
        return
    numbers, ticks = cheapest(times, counts, most)
    assert (ticks, len(numbers)) == expected
    assert numbers[-1] == size - 1
