"""The executor and the searches on top of it: legal, within limits, near brute force."""

from __future__ import annotations

import random

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.heuristics.checkpoint.persistent import persistent
from offcert.heuristics.rematerialisation.search import (
    POWERS,
    RematerialisationSearch,
    least_memory,
    least_time,
)
from offcert.verification.execution import execution_faults
from support.oracles.rematerialisation import RematerialisationOracle
from support.problems.random_networks import random_network
from support.seeds import by_seeds


def attempts(network: Network, seed: int, most: int) -> RematerialisationSearch:
    """Return a search that is stopped after so many questions whether to."""
    left = iter(range(most))
    return RematerialisationSearch(network, seed, lambda: next(left, None) is None)


@pytest.mark.slow
@by_seeds(0, 30, 15)
def test_near_brute_force_on_tiny_networks(seeds: range) -> None:
    exact = tried = 0
    for seed in seeds:
        rng = random.Random(seed)
        network = random_network(rng, rng.choice((2, 3)))
        oracle = RematerialisationOracle(network)
        least, peak = oracle.least_memory(), network.trace().peak_memory
        assert least is not None
        memory = rng.randint(least, peak)
        best = oracle.least_time(memory)
        assert best is not None
        found = attempts(network, seed, 150).least_time(memory)
        if found is not None:
            assert execution_faults(network, found.execution) == []
            assert best[0] <= found.time == found.execution.trace.compute_time
            assert found.memory == found.execution.trace.peak_memory <= memory
        deadline = network.compute_time + rng.choice((0, 1, 3, 8))
        late = oracle.least_memory(deadline)
        assert late is not None
        small = attempts(network, seed, 150).least_memory()
        quick = attempts(network, seed, 150).least_memory(deadline)
        for each in (small, quick):
            assert execution_faults(network, each.execution) == []
        assert small.memory >= least
        assert quick.memory >= late
        assert quick.time <= deadline
        exact += found is not None and found.time == best[0]
        exact += (small.memory == least) + (quick.memory == late)
        tried += 3
    assert exact >= 0.75 * tried


def long_chain(stages: int) -> CheckpointChain:
    rng = random.Random(stages)
    output = [rng.randint(1, 100) for _ in range(stages + 1)]
    return CheckpointChain(
        [rng.randint(1, 100) for _ in range(stages)],
        [rng.randint(1, 200) for _ in range(stages)],
        output,
        [size * rng.randint(1, 4) for size in output[1:]],
    )


@pytest.mark.slow
def test_not_longer_than_the_optimal_persistent_strategy_on_long_chains() -> None:
    """What is dropped need not be a checkpoint's whole stage, nor stay until it is read."""
    chain = long_chain(60)
    network = chain.network()
    peak = network.trace().peak_memory
    for part in (2, 4):
        found = attempts(network, 1, 60).least_time(peak // part)
        best = persistent(chain, peak // part, None).expand(network).trace.compute_time
        assert found is not None
        assert execution_faults(network, found.execution) == []
        assert found.time <= best
    small = attempts(network, 1, 60).least_memory()
    assert execution_faults(network, small.execution) == []
    assert small.memory <= 1.1 * max(network.own_memory)


def test_in_place_changes_are_made_again_in_order() -> None:
    """To read what was written before the change, it is written again, and changed again."""
    values = [
        Value("x", 1),
        Value("v", 4),
        Value("v'", 0, base=1),
        Value("w", 4),
        Value("y", 6),
        Value("g", 0),
        Value("h", 0),
    ]
    computations = [
        Computation("write", 1, 0, (0,), (1,)),
        Computation("read", 2, 0, (1,), (3,)),
        Computation("change", 3, 0, (1,), (2,)),
        Computation("large", 1, 0, (0,), (4,), repeatable=False),
        Computation("old", 1, 0, (3, 4), (5,), repeatable=False),
        Computation("new", 1, 0, (2, 5), (6,), repeatable=False),
    ]
    network = Network(computations, values)
    oracle = RematerialisationOracle(network)
    for memory in range(oracle.least_memory() or 0, network.trace().peak_memory + 1):
        found = attempts(network, 0, 40).least_time(memory)
        best = oracle.least_time(memory)
        assert found is not None
        assert best is not None
        assert execution_faults(network, found.execution) == []
        assert found.time >= best[0]


def test_more_results_than_there_are_bits() -> None:
    """A computation that writes a hundred values keeps those beyond the sixtieth."""
    values = [Value("x", 1)] + [Value(f"v{i}", 1) for i in range(100)] + [Value("g", 0)]
    computations = [
        Computation("many", 1, 0, (0,), tuple(range(1, 101)), lean=5),
        Computation("last", 1, 0, (0, 50, 90), (101,), repeatable=False),
    ]
    network = Network(computations, values)
    found = least_memory(network, seconds=0.05)
    assert execution_faults(network, found.execution) == []
    assert found.memory <= network.trace().peak_memory


def test_the_plain_execution_where_everything_fits() -> None:
    network = long_chain(10).network()
    found = least_time(network, network.trace().peak_memory, seconds=5)
    assert found is not None
    assert found.time == network.compute_time
    search = RematerialisationSearch(network)
    assert search.attempt(max(network.own_memory) - 1, 2**60, POWERS[0]) is None
    assert search.attempt(network.trace().peak_memory, 3, POWERS[0]) is None
