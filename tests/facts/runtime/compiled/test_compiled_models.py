"""Joint plans of models that people train, compiled: whole, bitwise, across breaks of the graph."""

import gc
import shutil
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import offcert
from offcert.questions.schedule.problem import Problem
from offcert.runtime import zoo
from offcert.runtime.capture.step import TrainingStep
from support.runtime.compiled_cases import as_it_is, moving_backend, plain, same

pytestmark = pytest.mark.slow

SIZES = {"vocab_size": 64, "use_cache": False, "bos_token_id": 0, "eos_token_id": 0}


def tokens() -> dict[str, torch.Tensor]:
    found = torch.randint(64, (2, 16), generator=torch.Generator().manual_seed(0))
    return {"input_ids": found, "labels": found}


def images(size: int, count: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(count, 3, size, size, generator=draw)
    return {"pixel_values": values, "labels": torch.tensor([1, 0, 3, 2])[:count]}


def gpt2() -> nn.Module:
    """Breaks the graph where it logs that it takes the usual loss."""
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    layers: Any = {"n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 16}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**layers, **none, **SIZES))


def llama() -> nn.Module:
    """Has two heads for keys and values, and four for queries."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1}
    width: Any = {"hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 16}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**width, **heads, **SIZES))


def vit() -> nn.Module:
    depth: Any = {"num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 16}
    width: Any = {"hidden_size": 32, "intermediate_size": 48, "patch_size": 4, "num_labels": 4}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**width, **depth))


class ResNet(nn.Module):
    """The beginning of ResNet-50, called as the others are."""

    def __init__(self) -> None:
        super().__init__()
        self.model = zoo.build("resnet50", classes=4)
        del self.model.layer1[2:]
        self.model.layer2 = self.model.layer3 = self.model.layer4 = nn.Sequential()
        self.model.fc = nn.Linear(256, 4)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.model(pixel_values), labels)}


def loss_of(model: Any, batch: Any) -> torch.Tensor:
    found: torch.Tensor = model(**batch)["loss"]
    return found


CASES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "gpt2": (gpt2, tokens()),
    "llama": (llama, tokens()),
    "vit": (vit, images(16, 2)),
    "resnet50": (ResNet, images(32, 2)),
}


@cache
def step_of(name: str) -> TrainingStep:
    torch.manual_seed(0)
    build, batch = CASES[name]
    return TrainingStep(build(), loss_of, batch, tensors="real")


@cache
def captured(name: str) -> Problem:
    return offcert.profile(step_of(name), clock="graphs", hardware="v100-pcie")


def counted(run: Callable[[], None]) -> int:
    """Return how many Python functions are called."""
    calls = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    gc.collect()
    gc.disable()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def trained(name: str, compiled: Any, count: bool = False) -> tuple[list[torch.Tensor], int]:
    """Return losses, gradients and buffers of some steps, and the calls of the last one."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    build, batch = CASES[name]
    model = build()
    model.load_state_dict(step_of(name).model.state_dict())
    runs = torch.compile(model, backend=compiled, dynamic=False)
    seen: list[torch.Tensor] = []

    def step() -> None:
        model.zero_grad()
        loss = loss_of(runs, batch)
        loss.backward()
        seen.append(loss.detach())

    step()
    seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
    if count:
        step()
    calls = counted(step) if count else 0
    return [*seen, *(each.clone() for each in model.buffers())], calls


@pytest.mark.parametrize("name", CASES)
def test_a_joint_plan_is_carried_out_whole_and_bitwise(name: str) -> None:
    problem = captured(name)
    compiled = moving_backend(problem, as_it_is)
    with warnings.catch_warnings():
        warnings.simplefilter("error", offcert.runtime.watch.guard.OffloadWarning)
        found, _ = trained(name, compiled)
    assert same(found, trained(name, plain(problem, as_it_is))[0])
    report = compiled.report
    assert report.complete, str(report)
    assert report.carried_bytes == report.planned_bytes > 0
    assert report.again
    # The logging of GPT-2 breaks its graph: each graph alone carries out a part.
    assert all(each.complete for each in compiled.reports) == (name != "gpt2")
    # Nobody counts what an interpreter takes.
    assert report.peak is None


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kernels_of_gpt2_follow_a_joint_plan_across_a_break() -> None:
    problem = captured("gpt2")
    compiled, without = moving_backend(problem, "inductor"), plain(problem, "inductor")
    found, calls = trained("gpt2", compiled, count=True)
    expected, calls_without = trained("gpt2", without, count=True)
    # What runs again beside other operators, or leaves, is fused and rounded otherwise.
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    report = compiled.report
    assert report.complete, str(report)
    # Without a plan, Inductor's buffers are those that the trace counts, but for what it fuses.
    assert without.report.peak is not None
    assert report.peak is not None
    peak = problem.trace.peak_memory
    assert 0.7 * peak < without.report.peak <= 1.05 * peak
    assert report.peak < 0.75 * without.report.peak
    # A tensor costs a call for each beginning and end of a copy; nothing else costs any.
    moved = compiled.planned.moved
    copies = len(moved) + sum(len(away) for away in moved.values())
    assert 0 < calls - calls_without <= 2 * copies
