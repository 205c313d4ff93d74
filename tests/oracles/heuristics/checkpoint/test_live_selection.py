"""Checkpoints of least live bytes: against the peak of every program's trace."""

import random

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.live import live_bytes
from offcert.heuristics.checkpoint.live_curve import live_selection
from papers.checkpoint_chains.segment_costs import live_costs
from support.oracles.checkpoint import subsets
from support.problems.random_networks import checkpoint_chain


@pytest.mark.slow
def test_no_set_of_checkpoints_has_a_lower_peak() -> None:
    rng = random.Random(5)
    better = 0
    for _ in range(120):
        chain = checkpoint_chain(rng, rng.randint(1, 6))
        found = live_selection(chain)
        peaks = [live_bytes(chain, checkpoints) for checkpoints in subsets(len(chain))]
        assert found.memory == min(peaks) == live_bytes(chain, found.checkpoints)
        better += found.memory < chain.network().trace().peak_memory
    assert better > 40


def test_longer_chains_by_their_costs() -> None:
    rng = random.Random(6)
    for stages in (10, 12):
        for _ in range(4):
            chain = checkpoint_chain(rng, stages)
            costs = live_costs(chain)
            assert live_selection(chain).memory == min(map(costs.memory, subsets(stages)))


def test_by_hand() -> None:
    """Four stages, all data of 2 bytes, all gradients of 1; nothing kept besides, no workspaces.

    Plainly, B3 has a0 … a4, d4 and d3: 12 bytes. With a2 stored it has a0, a2, a3, a4, d4, d3: 10;
    F1 run again has a0, a1, a2 and d2. With a3 alone B3 has a0, a3, a4, d4, d3: 8; then F0, F1 and
    F2 run again, and B2 has a0 … a3, d3, d2: 10. With everything stored, all is as without.
    """
    chain = CheckpointChain((1,) * 4, (1,) * 4, (2,) * 5, gradient=(1,) * 5)
    assert chain.network().trace().peak_memory == 12
    peaks = {checkpoints: live_bytes(chain, checkpoints) for checkpoints in subsets(4)}
    assert peaks[0, 4] == 12
    assert peaks[0, 2, 4] == peaks[0, 3, 4] == live_selection(chain).memory == 10
    assert peaks[0, 1, 2, 3, 4] == 12


def test_sizes_that_leave_no_room_for_sums_are_refused() -> None:
    chain = CheckpointChain((1,), (1,), (2**59, 2**59), gradient=(0, 0))
    with pytest.raises(InputError, match=r"sizes must sum to less than 2\*\*60 bytes"):
        live_selection(chain)
