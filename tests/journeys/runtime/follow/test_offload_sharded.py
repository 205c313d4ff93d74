"""Two processes of `fully_shard` under plans train what plain ones train, within the limit."""

import pytest

from support.runtime.ranks import results_of_ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return results_of_ranks("support.runtime.fsdp_worker", 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("way", ["resharded", "kept"])
def test_a_given_plan_is_followed_bitwise_and_to_the_byte(ranks, way):
    for found in (rank[way] for rank in ranks):
        assert found["equal"]
        assert found["steps"] == {"planned": 3}
        assert found["follows"]
        assert found["moved"] > 0
        # Captured without data and without a word to the others, and with both.
        assert found["same"]


def test_a_plan_that_is_not_the_others_is_refused_by_all(ranks):
    said = {rank["resharded"]["refused"] for rank in ranks}
    assert len(said) == 1
    assert said.pop().startswith("process 1 follows another plan than process 0")


def test_processes_follow_one_search_while_they_accumulate_gradients(ranks):
    first, second = (rank["auto"] for rank in ranks)
    for found in (first, second):
        assert found["equal"]
        assert found["steps"] == {"studied": 3, "planned": 6}
        assert found["within"]
    assert first["plans"] == second["plans"]
    assert len(first["plans"]) == 3
