"""Persistent checkpointing against enumeration, and beside recomputation in general."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Platform
from offcert.formulations.rematerialisation import retention_cpsat
from offcert.heuristics.checkpoint.persistent import (
    persistent,
    persistent_front,
    persistent_least_memory,
)
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.execution import execution_faults, persistency_faults
from support.oracles.persistent import least_persistent_time
from support.oracles.rematerialisation import RematerialisationOracle
from support.problems.random_networks import checkpoint_chain
from support.seeds import by_seeds


def assert_takes(chain: CheckpointChain, memory: int, slots: int | None, time: int) -> None:
    network = chain.network()
    execution = persistent(chain, memory, slots).expand(network)
    assert execution_faults(network, execution) == []
    assert persistency_faults(network, execution) == []
    assert execution.trace.peak_memory <= memory
    assert execution.trace.compute_time == time


@pytest.mark.slow
@by_seeds(0, 25)
def test_fronts_and_slots_reach_the_enumeration(seeds: range) -> None:
    """At the least memory, below it, and between it and the peak; with a slot a byte."""
    for seed in seeds:
        rng = random.Random(seed)
        chain = checkpoint_chain(rng, rng.choice((1, 2, 2, 3, 3, 3, 3, 4)))
        peak = chain.network().trace().peak_memory
        front = persistent_front(chain)
        least = front[0][0]
        assert least_persistent_time(chain, least - 1) is None
        for memory in {least, rng.randint(least, peak), peak}:
            best = least_persistent_time(chain, memory)
            assert best == [time for limit, time in front if limit <= memory][-1]
            assert_takes(chain, memory, None, best)
            assert_takes(chain, memory, max(1, memory), best)
        for slots in (None, max(1, least - 1)):
            with pytest.raises(NoPlanError, match=r"no (persistent )?strategy"):
                persistent(chain, least - 1, slots)


@by_seeds(0, 60, 30)
def test_fewer_slots_stay_within_the_limit_and_are_never_better(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        chain = checkpoint_chain(rng, 8)
        network = chain.network()
        front = persistent_front(chain)
        memory = rng.randint(front[0][0], network.trace().peak_memory)
        best = [time for limit, time in front if limit <= memory][-1]
        for slots in (3, 7, 20):
            try:
                execution = persistent(chain, memory, slots).expand(network)
            except NoPlanError:
                continue
            assert execution.trace.peak_memory <= memory
            assert execution.trace.compute_time >= best


@pytest.mark.slow
def test_least_memory_within_a_deadline() -> None:
    for seed in range(30):
        chain = checkpoint_chain(random.Random(seed), 7)
        network = chain.network()
        for memory, time in persistent_front(chain):
            execution = persistent_least_memory(chain, time).expand(network)
            assert (execution.trace.peak_memory, execution.trace.compute_time) == (memory, time)
        with pytest.raises(NoPlanError, match="no strategy ends within"):
            persistent_least_memory(chain, network.compute_time - 1)


@pytest.mark.slow
def test_recomputation_in_general_is_never_worse_and_often_the_same() -> None:
    """CP-SAT's model knows nothing of persistency."""
    same = 0
    for seed in range(30):
        rng = random.Random(seed)
        chain = checkpoint_chain(rng, 3)
        least = persistent_front(chain)[0][0]
        peak = chain.network().trace().peak_memory
        memory = rng.randint(least, peak)
        time = [time for limit, time in persistent_front(chain) if limit <= memory][-1]
        platform = Platform(memory, Fraction(1))
        problem = Problem("c", chain, platform, recompute=Recompute.ANY, offload=False)
        found = retention_cpsat.solve(problem, runs=3)
        assert found.objective is not None
        assert found.objective <= time
        same += found.objective == time
    assert same >= 15


def test_persistency_costs_a_run_where_a_checkpoint_serves_two_stages() -> None:
    """``a_2`` is the input of stage 2, and all that stage 1 saves.

    The papers' strategies give it up when ``B_2`` has read it, as the input of stage 1 has not been
    stored with it, and make it again. It is enough to make ``a_1`` again.
    """
    chain = CheckpointChain([1, 1, 1], [0, 0, 0], [0, 2, 2, 2], gradient=[0, 0, 0, 0])
    network = chain.network()
    assert persistent_front(chain) == [(4, 5), (6, 3)]
    assert least_persistent_time(chain, 4) == 5
    assert RematerialisationOracle(network).least_time(4) == (4, [0, 1, 2, 3, 0, 4, 5])
    platform = Platform(4, Fraction(1))
    problem = Problem("c", chain, platform, recompute=Recompute.ANY, offload=False)
    found = retention_cpsat.solve(problem, runs=3)
    assert (found.objective, found.status) == (4, "OPTIMAL")
    # Nothing can be left out: with one stage fewer, or with nothing in the second, none is lost.
    for smaller in (
        CheckpointChain([1, 1], [0, 0], [0, 2, 2], gradient=[0, 0, 0]),
        replace(chain, output=(0, 0, 2, 2)),
    ):
        oracle = RematerialisationOracle(smaller.network())
        for memory, time in persistent_front(smaller):
            best = oracle.least_time(memory)
            assert best is not None
            assert best[0] == time


def test_bad_numbers_are_refused() -> None:
    chain = checkpoint_chain(random.Random(1), 6)
    with pytest.raises(MethodError, match="at least 1 slot"):
        persistent(chain, 10, 0)
    with pytest.raises(MethodError, match="more than 3 points"):
        persistent_front(chain, max_points=3)
