"""Brute force over executions, against itself: two ways of searching, and cases by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.platform import Platform
from offcert.questions.schedule.problem import Problem
from support.oracles.joint import _with_offloading, least_time
from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem
from support.seeds import by_seeds


@by_seeds(0, 120, 30)
def test_a_search_over_states_and_one_over_strategies_agree_where_nothing_leaves(
    seeds: range,
) -> None:
    again = 0
    for seed in seeds:
        rng = random.Random(seed)
        network = checkpoint_chain(rng, 2) if seed % 2 else random_network(rng, 2)
        problem = replace(recompute_problem(rng, network), offload=False)
        assert problem.computed is not None
        states = least_time(problem)
        strategies = _with_offloading(problem, problem.computed, 2)
        if states is None:
            assert strategies is None
        else:
            # More than two runs again are never needed on networks as small as these.
            assert states == strategies
            again += states > problem.computed.compute_time
    assert again >= 3


def test_a_chain_by_hand() -> None:
    """Three equal stages of one byte; B2 reads a2 and a3, so that with three bytes a1 goes."""
    chain = CheckpointChain([2] * 3, [3] * 3, [1] * 4, gradient=[0] * 4)
    problem = Problem("chain", chain, Platform(4, Fraction(1, 9)), recompute="any")
    assert least_time(problem) == 15
    # F2 and B2 leave one byte to a0 and a1: F0 runs again before B1.
    assert least_time(problem.with_memory(3)) == 15 + 2
    # The input cannot be made again: it needs a third byte beside a2 and a3, or has to move.
    assert least_time(replace(problem.with_memory(2), offload=False)) is None
    assert least_time(replace(problem.with_memory(3), offload=False)) == 15 + 2
