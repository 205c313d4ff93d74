"""Autocast on the CPU, where a step for a card is captured, computes in the types of the card's."""

import pytest
import torch
from torch.nn import functional

from offcert.runtime.capture import capture
from offcert.runtime.workloads.configured import CardAutocast, training_step

HALF, FULL = torch.bfloat16, torch.float32
IN_FLOAT32 = {
    "power": lambda x: x**3.0,
    "torch.pow": lambda x: torch.pow(x, 3.0),
    "pow": lambda x: x.pow(3.0),
    "reciprocal": lambda x: 1 / x,
    "layer_norm": lambda x: functional.layer_norm(x, (8,)),
    "module": lambda x: torch.nn.LayerNorm(8)(x),
    "softmax": lambda x: functional.softmax(x, -1),
    "sum": lambda x: x.sum(),
    "loss": lambda x: functional.mse_loss(input=x, target=x),
}
AS_GIVEN = {
    "product": lambda x: x @ x,
    "sum of two": lambda x: x + x,
    "gelu": functional.gelu,
    "type of one's own": lambda x: functional.softmax(x, -1, dtype=HALF),
}


@pytest.mark.parametrize("name", [*IN_FLOAT32, *AS_GIVEN])
def test_types_are_those_of_autocast_on_a_card(name: str) -> None:
    compute = (IN_FLOAT32 | AS_GIVEN)[name]
    x = torch.rand(8, 8, dtype=HALF)
    with torch.autocast("cpu", HALF), CardAutocast():
        assert compute(x).dtype is (FULL if name in IN_FLOAT32 else HALF)
        with torch.autocast("cpu", enabled=False):
            assert (x**3.0).dtype is HALF
    with CardAutocast():
        assert (x**3.0).dtype is HALF


def test_gpt_2_saves_its_activations_in_float32() -> None:
    """A power computes in float32, and so does what takes it: as on an H200, layer by layer."""
    config = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 16, "n_layer": 2,
        "n_head": 2, "n_positions": 32, "vocab_size": 11, "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    step = training_step(config, 2, 32, autocast="bf16")
    found = capture(step, tensors="real")
    names = [operation.name for operation in found.trace.operations]
    places = [each.place for each in found.storages]
    kept = [each.dtype for each in places if names[each.operation].endswith("h.1.mlp.act")]
    assert sorted(kept) == ["bfloat16", "float32", "float32", "float32"]


def test_a_result_goes_where_it_is_asked_to():
    """As on a card, where autocast leaves such calls alone."""
    x, there = torch.ones(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16), CardAutocast():
        assert torch.exp(x, out=there) is there
    assert there.eq(x.exp()).all()
