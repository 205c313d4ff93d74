"""Programs of checkpoints: legal, persistent, and as many bytes as their costs say."""

import random
from itertools import pairwise

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.live import (
    checkpoint_execution,
    checkpoint_program,
    live_bytes,
    recomputed_time,
)
from offcert.verification.execution import execution_faults, persistency_faults
from papers.checkpoint_chains.segment_costs import live_costs
from papers.checkpoint_chains.stage_ends import stage_end_bytes
from support.oracles.checkpoint import subsets
from support.problems.random_networks import checkpoint_chain


@pytest.mark.slow
def test_every_set_of_checkpoints_is_a_legal_execution_of_its_cost() -> None:
    rng = random.Random(7)
    repeated = 0
    for _ in range(60):
        chain = checkpoint_chain(rng, rng.randint(1, 6))
        network, costs = chain.network(), live_costs(chain)
        for checkpoints in subsets(len(chain)):
            execution = checkpoint_execution(chain, checkpoints)
            assert execution_faults(network, execution) == []
            assert persistency_faults(network, execution) == []
            peak = execution.trace.peak_memory
            assert peak == costs.memory(checkpoints) == live_bytes(chain, checkpoints)
            assert peak <= costs.most
            assert stage_end_bytes(chain, checkpoints) <= peak
            again = execution.trace.compute_time - network.compute_time
            assert again == recomputed_time(chain, checkpoints)
            repeated += execution.repeated
    assert repeated > 1000


def test_what_is_a_segment() -> None:
    """Not the last stretch, nor a single stage that keeps its output alone."""
    chain = CheckpointChain((1,) * 6, (1,) * 6, (1,) * 7, (1, 1, 1, 3, 1, 1))
    program = checkpoint_program(chain, (0, 2, 3, 4, 6))
    assert [(each.first, each.last) for each in program.segments] == [(0, 1), (3, 3)]
    assert checkpoint_program(chain, (0, 6)).segments == ()
    runs = checkpoint_execution(chain, (0, 2, 6)).runs
    # F0 … F5, B5 … B2; F0 and F1 again; B1 and B0.
    assert runs == (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 10, 11)


def test_every_checkpoint_is_stored_until_its_backward_operation() -> None:
    chain = CheckpointChain((1,) * 5, (1,) * 5, (1,) * 6)
    execution = checkpoint_execution(chain, (0, 1, 3, 5))
    # Of a2 and a4: one copy passed on, one for the backward pass; the last stretch has one.
    copies = [execution.values.count(value) for value in range(6)]
    assert copies == [1, 1, 2, 2, 1, 1]
    runs = [chain.network().computations[run].name for run in execution.runs]
    assert [name for name, after in pairwise(runs) if after == "F1" and name != "F0"] == ["B3"]


def test_what_are_no_checkpoints_is_refused() -> None:
    chain = CheckpointChain((1, 1), (1, 1), (1, 1, 1))
    for function in (checkpoint_program, live_bytes, recomputed_time, stage_end_bytes):
        with pytest.raises(InputError, match="must begin with 0 and end with 2"):
            function(chain, (0, 3))
