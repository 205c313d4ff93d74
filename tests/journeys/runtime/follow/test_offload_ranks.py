"""Two processes train under plans as without: replicated, sharded, and by the Trainer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from offcert.core.errors import InputError
from offcert.runtime.follow.offload import follow
from support.runtime.ranks import results_of_ranks

REPLICATED = "support.runtime.ddp_worker"
SHARDED = "support.runtime.fsdp_worker"
HUGGING_FACE = "support.runtime.huggingface_fsdp_worker"
Results = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every program's results: to start one takes as long as what it does."""
    folder = tmp_path_factory.mktemp("ranks")
    return results_of_ranks((REPLICATED, SHARDED, HUGGING_FACE), 2, folder)


# Replicated: DistributedDataParallel.


def test_gradients_are_those_of_plain_data_parallel_training(results: Results) -> None:
    first, second = results(REPLICATED)
    for found in (first, second):
        assert found["equal"]
        assert found["steps"] == {"planned": 4}
        assert found["follows"]
        assert found["moved"]
        assert found["hooks"] == 0
        assert found["refused"].startswith("process 1 follows another plan than process 0")
    # They have had different batches, so equal gradients have been reduced.
    assert first["gradients"] == second["gradients"]


# Sharded: `fully_shard`.


@pytest.mark.parametrize("way", ["resharded", "kept"])
def test_a_given_plan_is_followed_bitwise_and_to_the_byte(results: Results, way: str) -> None:
    for found in (rank[way] for rank in results(SHARDED)):
        assert found["equal"]
        assert found["steps"] == {"planned": 3}
        assert found["follows"]
        assert found["moved"] > 0
        # Captured without data and without a word to the others, and with both.
        assert found["same"]


def test_a_plan_that_is_not_the_others_is_refused_by_all(results: Results) -> None:
    said = {rank["resharded"]["refused"] for rank in results(SHARDED)}
    assert len(said) == 1
    assert said.pop().startswith("process 1 follows another plan than process 0")


def test_processes_follow_one_search_while_they_accumulate_gradients(results: Results) -> None:
    first, second = (rank["auto"] for rank in results(SHARDED))
    for found in (first, second):
        assert found["equal"]
        assert found["steps"] == {"studied": 3, "planned": 6}
        assert found["within"]
    assert first["plans"] == second["plans"]
    assert len(first["plans"]) == 3


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


# The Trainer and Accelerate with FSDP2.


@pytest.mark.parametrize("way", ["trainer", "accelerate"])
def test_shards_are_those_of_training_without_a_plan(results: Results, way: str) -> None:
    for found in (rank[way] for rank in results(HUGGING_FACE)):
        assert found["sharded"] == "FSDPGPT2LMHeadModel"
        assert found["equal"]
        assert found["steps"] == {"studied": 1, "planned": 2}
        assert found["within"]
        assert found["moved"] > 0


def test_flat_parameters_are_refused_before_the_first_step(results: Results) -> None:
    for rank in results(HUGGING_FACE):
        assert rank["trainer"]["refused"].startswith("a Trainer with FSDP1 keeps its parameters")
