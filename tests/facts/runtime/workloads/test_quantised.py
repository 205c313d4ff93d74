"""Weights of 4 and 8 bits: their bytes, what a pass makes of them, and what is refused."""

from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.pairs.train import train
from offcert.runtime.profiling.profile import profile
from offcert.runtime.workloads.configured import training_step
from offcert.runtime.workloads.quantised import Quantisation, QuantisedLinear, quantisation_of
from offcert.runtime.workloads.workload import CONFIGURED

TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
}
# As files of models that were packed beforehand have it.
PACKED = {
    "_load_in_4bit": True,
    "load_in_4bit": True,
    "load_in_8bit": False,
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "llm_int8_skip_modules": ["down_proj"],
    "quant_method": "bitsandbytes",
}


@pytest.mark.parametrize(
    ("how", "sizes", "error"),
    [
        # Bytes are those of bitsandbytes 0.50 for 512 x 256: packed; largest of 64 each, table of
        # 16; for double quantisation bytes instead, with a number each 256, a table and an offset.
        (Quantisation(4, double=False), [65_536, 8192, 64], Fraction(1, 6)),
        (Quantisation(4), [65_536, 2048, 64, 32, 1028], Fraction(1, 6)),
        (Quantisation(8), [131_072, 2048], Fraction(1, 250)),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_bytes_and_values_of_packed_weights(
    how: Quantisation, sizes: list[int], error: Fraction, device: str
) -> None:
    torch.manual_seed(0)
    base = nn.Linear(256, 512, device=device)
    layer = QuantisedLinear(base, how)
    assert [each.nbytes for each in (layer.weight, *layer.statistics)] == sizes
    assert not any(each.requires_grad for each in layer.parameters())
    if device == "cpu":
        most = base.weight.abs().max()
        assert (layer.unpacked(torch.float32) - base.weight).abs().max() < float(error) * most


@pytest.mark.parametrize("bits", [4, 8])
def test_a_pass_multiplies_by_what_was_packed(bits: int) -> None:
    torch.manual_seed(0)
    layer = QuantisedLinear(nn.Linear(96, 50), Quantisation(bits))
    whole = nn.Linear(96, 50)
    whole.load_state_dict({"weight": layer.unpacked(torch.float32), "bias": layer.bias})
    x, y = (torch.ones(3, 96).requires_grad_() for _ in range(2))
    out, expected = layer(x), whole(y)
    assert torch.equal(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("compute", [None, torch.float32])
def test_the_copy_of_the_weights_is_there_while_a_pass_uses_it(compute: torch.dtype | None) -> None:
    """Of 64 x 32 weights in bfloat16 or float32, in both passes, beside rows of less than 1 KiB."""
    layer = QuantisedLinear(nn.Linear(64, 32, dtype=torch.bfloat16), Quantisation(4, True, compute))
    model = nn.Sequential(nn.Linear(64, 64, dtype=torch.bfloat16), layer)
    model[0].weight.requires_grad_(False)
    step = TrainingStep(model, lambda m, x: m(x).sum(), torch.ones(1, 64, dtype=torch.bfloat16))
    found = capture(step, tensors="fake")
    copy = 64 * 32 * (2 if compute is None else 4)
    spent = {each.name: each.workspace for each in found.trace.operations}
    assert copy <= spent["F:1"] < copy + 1024
    assert copy <= max(size for name, size in spent.items() if name[0] == "B") < copy + 1024
    # Nothing waits for the backward pass, which makes a copy of its own.
    assert sum(each.size for each in found.trace.tensors if each.evictable) == 0


def profiled(config: dict[str, Any], **options: Any) -> Problem:
    given = {"config": config, "sequence": 16, "batch": 2, "lora": 4} | options
    return profile(CONFIGURED, hardware="rtx-4090", optimiser="adamw", options=given)


def uncounted(problem: Problem) -> dict[str, int]:
    assert problem.source is not None
    found: dict[str, int] = problem.source["uncounted"]
    return found


@pytest.mark.slow
def test_a_configuration_says_which_weights_are_packed() -> None:
    whole = uncounted(profiled(TINY))
    packed = uncounted(profiled(TINY | {"quantization_config": PACKED}))
    # q and o are 64 x 64, k and v 32 x 64, gate and up 80 x 64; those of `down_proj`, the embedding
    # and the output stay as they are.
    shapes = [64 * 64, 64 * 64, 32 * 64, 32 * 64, 80 * 64, 80 * 64]
    kept = [n // 2 + n // 64 + 64 + 4 * -(-n // (64 * 256)) + 4 * 257 for n in shapes]
    assert whole["parameters"] - packed["parameters"] == 2 * sum(shapes) - sum(kept)
    # Adapters are trained, and nothing else.
    thin = 2 * 4 * (2 * 128 + 2 * 96 + 3 * 144)
    assert whole["gradients"] == packed["gradients"] == thin
    assert packed["optimiser"] == 2 * thin + 4 * 7 * 2


@pytest.mark.slow
def test_what_waits_is_the_same_as_with_whole_weights() -> None:
    found = {bits: profiled(TINY, bits=bits) for bits in (None, 4, 8)}
    kept = {
        bits: sum(each.size for each in problem.trace.tensors if each.evictable)
        for bits, problem in found.items()
    }
    assert kept[4] == kept[None]
    # With 8 bits bitsandbytes holds the inputs of its layers, which cannot leave then.
    assert kept[8] < kept[4]
    assert found[4].computed is not None
    assert found[8].computed is None


@pytest.mark.slow
def test_a_step_with_packed_weights_trains_by_its_plan() -> None:
    found = train(profiled(TINY | {"quantization_config": PACKED}), Plan(()), steps=1)
    assert found.ok


@pytest.mark.parametrize(
    ("said", "bits", "fault"),
    [
        ({"quant_method": "gptq", "bits": 4}, None, 'weights packed by "gptq" are not supported'),
        (
            {"quant_method": "fp8"},
            None,
            "those of bitsandbytes are, with load_in_4bit or load_in_8bit",
        ),
        ({"quant_method": "bitsandbytes"}, None, "with load_in_4bit or load_in_8bit"),
        ("4", None, "quantization_config must be an object, not '4'"),
        (PACKED, 4, "bits cannot be given: the configuration has a quantization_config"),
        (PACKED | {"bnb_4bit_compute_dtype": "int8"}, None, 'compute_dtype .*, not "int8"'),
        (None, 5, "bits must be 4 or 8, not 5"),
    ],
)
def test_other_ways_to_pack_weights_are_refused(said: Any, bits: int | None, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        quantisation_of(TINY | ({} if said is None else {"quantization_config": said}), bits)


def test_packed_weights_need_adapters() -> None:
    with pytest.raises(InputError, match="lora is missing: weights of 4 bits are not trained"):
        training_step(TINY | {"quantization_config": PACKED}, 1, 16)
