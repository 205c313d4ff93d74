"""The Trainer and Accelerate with FSDP2, in two processes, under plans and without."""

import pytest

from support.runtime.ranks import results_of_ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    program = "support.runtime.huggingface_fsdp_worker"
    return results_of_ranks(program, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("way", ["trainer", "accelerate"])
def test_shards_are_those_of_training_without_a_plan(ranks, way):
    for found in (rank[way] for rank in ranks):
        assert found["sharded"] == "FSDPGPT2LMHeadModel"
        assert found["equal"]
        assert found["steps"] == {"studied": 1, "planned": 2}
        assert found["within"]
        assert found["moved"] > 0


def test_flat_parameters_are_refused_before_the_first_step(ranks):
    for rank in ranks:
        assert rank["trainer"]["refused"].startswith("a Trainer with FSDP1 keeps its parameters")
