"""Trades of live bytes against time: against every program of segments."""

import random
from collections.abc import Iterator

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError, MethodError
from offcert.core.execution import Execution
from offcert.core.program import Program, Segment
from offcert.heuristics.checkpoint.live_curve import live_curve, live_selection
from offcert.verification.execution import execution_faults, persistency_faults
from papers.checkpoint_chains.networks import selection_network
from support.problems.random_networks import checkpoint_chain


def programs(stages: int, first: int = 0) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every set of disjoint segments of the stages from `first` on."""
    if first == stages:
        yield ()
        return
    yield from programs(stages, first + 1)
    for last in range(first, stages):
        for rest in programs(stages, last + 1):
            yield (first, last), *rest


def executed(chain: CheckpointChain, segments: tuple[tuple[int, int], ...]) -> Execution:
    network = chain.network()
    strategy = Program(Segment(*each) for each in segments).strategy(network)
    return strategy.without_unread(network).expand(network)


@pytest.mark.slow
def test_the_curve_is_the_front_of_all_programs() -> None:
    assert len(list(programs(3))) == 13
    rng = random.Random(16)
    trades = 0
    for _ in range(40):
        chain = checkpoint_chain(rng, rng.randint(1, 5))
        computing = chain.network().compute_time
        found = set()
        for segments in programs(len(chain)):
            trace = executed(chain, segments).trace
            found.add((trace.peak_memory, trace.compute_time - computing))
        front: list[tuple[int, int]] = []
        for memory, again in sorted(found):
            if not front or again < front[-1][1]:
                front.append((memory, again))
        curve = live_curve(chain)
        assert [(trade.memory, trade.again) for trade in curve] == front
        limit = sorted(found)[len(found) // 2][0]
        assert [t.memory for t in live_curve(chain, limit)] == [m for m, _ in front if m <= limit]
        trades += len(curve)
    assert trades > 80


def test_every_trade_is_a_legal_execution_of_its_bytes_and_ticks() -> None:
    rng = random.Random(17)
    for _ in range(10):
        chain = checkpoint_chain(rng, 9)
        network = chain.network()
        for trade in live_curve(chain):
            execution = executed(chain, trade.segments)
            assert execution_faults(network, execution) == []
            assert persistency_faults(network, execution) == []
            assert execution.trace.peak_memory == trade.memory
            assert execution.trace.compute_time == network.compute_time + trade.again
            assert trade.program.to_json()["segments"] == [
                {"first": first, "last": last, "kept": [], "inner": []}
                for first, last in trade.segments
            ]


def test_least_memory_is_never_more_than_that_of_checkpoints() -> None:
    rng = random.Random(18)
    for _ in range(60):
        chain = checkpoint_chain(rng, rng.randint(1, 12))
        curve = live_curve(chain)
        assert curve[0].memory <= live_selection(chain).memory
        # Stages that take no time run again for nothing.
        assert curve[-1].again == 0
        assert curve[-1].memory <= chain.network().trace().peak_memory


def test_vgg19_at_its_least_bytes_runs_a_tenth_of_what_is_published() -> None:
    chain = selection_network("vgg19", 128, pytorch=True)
    trade = live_curve(chain)[0]
    assert trade.memory == live_selection(chain).memory
    assert 0 < 30 * trade.again <= chain.network().compute_time + 30


def test_nothing_fits_below_the_least() -> None:
    chain = selection_network("alexnet", 1)
    least = live_curve(chain)[0].memory
    assert live_curve(chain, least - 1) == []
    assert [trade.memory for trade in live_curve(chain, least)] == [least]


def test_what_is_too_much_is_refused() -> None:
    chain = selection_network("vgg19", 1)
    with pytest.raises(MethodError, match="keeps more than 10 continuations"):
        live_curve(chain, max_choices=10)
    large = CheckpointChain((1,), (1,), (2**59, 2**59), gradient=(0, 0))
    with pytest.raises(InputError, match=r"sizes must sum to less than 2\*\*60 bytes"):
        live_curve(large)
