"""Random programs: times and races as their graphs have them, and bytes that depend on nobody."""

import random
from fractions import Fraction

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offcert.core.platform import Link, Platform
from offcert.runtime.simulated import by_chance, early
from support.oracles.simulated_programs import graph, random_program, run
from support.seeds import by_seeds

RATES = st.builds(Fraction, st.integers(1, 9), st.integers(1, 5))


@given(st.integers(0, 10**9), RATES, RATES, st.booleans())
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_times_are_the_longest_paths(seed, rate_out, rate_back, simplex):
    steps = random_program(seed, length=20, care=0.6)
    rates = rate_out, rate_back
    link = Link.SIMPLEX if simplex else Link.DUPLEX
    outcome = run(steps, Platform(0, rate_out, link, rate_back))
    assert outcome.times == graph(steps, rates, simplex).times()


@by_seeds(0, 400, 200)
def test_races_are_found_where_no_path_is_and_nowhere_else(seeds):
    racing = 0
    for seed in seeds:
        steps = random_program(seed, care=random.Random(seed).choice([0.8, 1, 1]))
        expected = graph(steps).races()
        assert bool(run(steps).races) == bool(expected), seed
        racing += bool(expected)
    assert 100 < racing < 300


@by_seeds(0, 60, 30)
def test_each_wait_that_is_taken_away_is_found_if_it_was_needed(seeds):
    needed = wrong = 0
    for seed in seeds:
        steps = random_program(seed, length=8, care=1)
        right = run(steps)
        if right.races:
            continue
        for place in [place for place, step in enumerate(steps) if step[0] == "wait"]:
            less = steps[:place] + steps[place + 1 :]
            expected, outcome = graph(less).races(), run(less)
            assert bool(outcome.races) == bool(expected)
            needed += bool(expected)
            same = torch.equal(outcome.host, right.host) and all(
                torch.equal(tensor, right.tensors[which])
                for which, tensor in outcome.tensors.items()
            )
            # Bytes are never wrong without a race.
            assert same or expected
            wrong += not same
    assert needed >= 44
    assert wrong >= 3


@by_seeds(0, 60, 30)
def test_without_races_nobody_can_make_a_difference(seeds):
    compared = 0
    for seed in seeds:
        steps = random_program(seed, care=1)
        late = run(steps)
        if late.races:
            continue
        for adversary in (early, by_chance(seed)):
            other = run(steps, adversary=adversary)
            assert other.races == 0
            assert other.times == late.times
            assert torch.equal(other.host, late.host)
            for which, tensor in late.tensors.items():
                assert torch.equal(other.tensors[which], tensor)
        compared += 1
    assert compared >= 7
