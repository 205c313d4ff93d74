"""Two processes of DistributedDataParallel under a plan reduce what plain ones reduce."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from offcert.core.errors import InputError
from offcert.runtime.follow.offload import follow
from support.runtime.ranks import results_of_ranks

WORKER = "support.runtime.ddp_worker"


def test_gradients_are_those_of_plain_data_parallel_training(tmp_path):
    first, second = results_of_ranks(WORKER, 2, tmp_path)
    for found in (first, second):
        assert found["equal"]
        assert found["steps"] == {"planned": 4}
        assert found["follows"]
        assert found["moved"]
        assert found["hooks"] == 0
        assert found["refused"].startswith("process 1 follows another plan than process 0")
    # They have had different batches, so equal gradients have been reduced.
    assert first["gradients"] == second["gradients"]


def test_sharded_modules_are_refused_by_name(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    try:
        model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        fully_shard(model[1], mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(InputError, match=r"1 is sharded by fully_shard \(FSDP2\)"):
            follow(model, [])
    finally:
        torch.distributed.destroy_process_group()
