"""Gradients that a host process adds up during the backward pass of three device processes."""

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.host_gradients import HostGradients, add_gradients
from support.runtime.ranks import results_of_ranks

WORKER = "support.runtime.host_gradients_worker"
DEVICES = 3


def equal(ours, theirs):
    pairs = zip(ours, theirs, strict=True)
    return all(
        torch.equal(one, other)
        for mine, expected in pairs
        for one, other in zip(mine, expected, strict=True)
    )


def test_sums_are_bitwise_those_of_plain_data_parallel_training(tmp_path):
    """Also in sub-batches, and with an offload plan in each process."""
    *devices, host = results_of_ranks(WORKER, DEVICES + 1, tmp_path)
    for found in devices:
        assert equal(found["plain"], host["reference"])
        assert equal(found["planned"], host["reference"])
        assert found["steps"] == {"planned": 6}
        assert found["moved"] > 0
        assert found["hooks"] == 0


def test_what_cannot_be_exchanged_is_refused():
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(InputError, match="no parameter requires a gradient"):
        HostGradients(frozen.parameters(), 0)
    with pytest.raises(InputError, match="devices must not be empty"):
        add_gradients(nn.Linear(2, 2).parameters(), [], 1)
