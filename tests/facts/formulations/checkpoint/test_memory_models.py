"""What a set of checkpoints costs: by hand, and in the form that all models share."""

import random

import pytest

from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.live import chen_memory
from papers.checkpoint_chains.memory_models import (
    MEMORY_MODELS,
    dynamic_memory,
    reforwarding_memory,
    static_memory,
)
from papers.checkpoint_chains.segment_costs import dynamic_costs, static_costs
from support.oracles.checkpoint import random_sizes, subsets

SIZES = [4, 1, 5, 2, 2, 7, 3]
CHECKPOINTS = (0, 2, 5, 6)


@pytest.mark.parametrize(
    ("model", "bytes_"),
    [
        # 4 + 5 + 7 + 3 are stored; the segments have 1, 2 + 2 and nothing.
        (static_memory, 19 + 4),
        # To 2: 4 + 5 + 1, buffer 4. To 5: 4 + 5 + 7 + 4, buffer 5. To 6: 19, buffer 7.
        (dynamic_memory, 26),
        # 5 + 7 between the ends.
        (reforwarding_memory, 12 + 4),
        # Segments with their ends: 6, 11, 3.
        (chen_memory, 12 + 11),
    ],
)
def test_models_by_hand(model, bytes_: int) -> None:
    assert model(SIZES, CHECKPOINTS) == bytes_


def test_the_buffer_counts_the_left_checkpoint_and_not_the_right() -> None:
    assert dynamic_memory([5, 1, 1], (0, 2)) == 5 + 1 + 1 + 5
    assert dynamic_memory([1, 1, 5], (0, 2)) == 1 + 5 + 1 + 1
    assert dynamic_memory([5, 1, 1], (0, 2), [0, 1, 1]) == 5 + 1 + 1 + 1


def test_the_costs_of_segments_are_those_of_the_models() -> None:
    rng = random.Random(8)
    for _ in range(40):
        layers = rng.randint(1, 7)
        sizes, gradients = random_sizes(rng, layers), random_sizes(rng, layers)
        static, dynamic = static_costs(sizes), dynamic_costs(sizes, gradients)
        for checkpoints in subsets(layers):
            memory = static.memory(checkpoints)
            assert memory == static_memory(sizes, checkpoints) <= static.most
            ends = sizes[0] + sizes[-1]
            assert memory == reforwarding_memory(sizes, checkpoints) + ends
            memory = dynamic.memory(checkpoints)
            assert memory == dynamic_memory(sizes, checkpoints, gradients) <= dynamic.most


@pytest.mark.parametrize(
    ("checkpoints", "message"),
    [
        ((0, 2), r"checkpoints must begin with 0 and end with 6, not be \[0, 2\]"),
        ((1, 6), r"checkpoints must begin with 0 and end with 6, not be \[1, 6\]"),
        ((), r"checkpoints must begin with 0 and end with 6, not be \[\]"),
        ((0, 3, 3, 6), "checkpoints must increase, but 3 follows 3"),
        ((0, 2.0, 6), r"checkpoints\[1\] must be an integer"),
    ],
)
def test_what_are_no_checkpoints_is_refused(checkpoints: tuple, message: str) -> None:
    for model in MEMORY_MODELS.values():
        with pytest.raises(InputError, match=message):
            model(SIZES, checkpoints)


def test_gradients_of_another_number_are_refused() -> None:
    with pytest.raises(InputError, match="gradients must have 7 entries, not 1"):
        dynamic_costs(SIZES, [1])
    with pytest.raises(InputError, match="sizes must have at least 2 entries, not 1"):
        static_costs([1])
