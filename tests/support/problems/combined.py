"""Seeded random problems for the combined program: chains with internals, at scarce memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from offcert.core.platform import Platform
from offcert.questions.schedule.problem import Problem, Recompute
from support.problems.random_networks import checkpoint_chain

RATES = (Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(3))


def combined_problem(seed: int, stages: int, two_rates: bool = False) -> Problem:
    """Return a chain of at most so many stages, at a memory between its least and its peak."""
    rng = random.Random(seed)
    chain = checkpoint_chain(rng, rng.randint(1, stages))
    network = chain.network()
    least = max(network.own_memory)
    memory = rng.randint(least, max(network.trace().peak_memory, least))
    back = rng.choice((*RATES, None)) if two_rates else None
    platform = Platform(memory, rng.choice(RATES), prefetch_bandwidth=back)
    return Problem(f"chain {seed}", chain, platform, recompute=Recompute.CHAIN)


def combined_problems(seeds: range, stages: int, two_rates: bool = False) -> Iterator[Problem]:
    """Yield a problem a seed."""
    for seed in seeds:
        yield combined_problem(seed, stages, two_rates)
