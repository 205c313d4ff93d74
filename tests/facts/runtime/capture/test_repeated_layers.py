"""Steps of equal layers, some of which are recorded for all: the capture is that of the whole."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from offcert.runtime.capture import capture
from offcert.runtime.capture import run as run_module
from offcert.runtime.capture.repeated import repeated
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import hardware
from offcert.runtime.workloads.configured import training_step

MACHINE = hardware("h100-sxm")
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "vocab_size": 13,
    "num_hidden_layers": 16,
}


class Block(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.linear = nn.Linear(8, 8)
        self.gate = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x)) * torch.sigmoid(self.gate(x) * scale)


class Stack(nn.Module):
    """A program may do anything with its layers: `kind` says what this one does."""

    def __init__(self, depth: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first = nn.Linear(8, 8)
        self.layers = nn.ModuleList(Block(number) for number in range(depth))
        self.last = nn.Linear(8, 3)
        if kind == "other":
            self.layers[depth - 4].gate = nn.Linear(8, 8, bias=False)
        if kind == "turns":
            for layer in self.layers[1::2]:
                layer.gate = nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        scale = x.detach().exp()
        seen = []
        for number, layer in enumerate(self.layers):
            x = layer(x, scale)
            seen.append(x)
            if self.kind == "growing":
                # Each of the first layers does more than the one before.
                for _ in range(min(number, 6)):
                    x = x.sin()
        if self.kind == "all":
            x = torch.stack(seen).sum(0)
        return self.last(x)


def stack(depth: int, kind: str, batches: int = 1) -> TrainingStep:
    def run(model: nn.Module, batch: torch.Tensor) -> torch.Tensor | None:
        if batches == 1:
            return model(batch).square().mean()
        for _ in range(batches):
            (model(batch).square().mean() / batches).backward()
        return None

    with torch.device("meta"):
        model = Stack(depth, kind)
    return TrainingStep(model, run, lambda: torch.randn(4, 8), tensors="fake")


def both(step: TrainingStep, clock: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Compare with the capture of the whole; return whether layers stood for others."""
    used = []

    def watched(*args: Any) -> Any:
        used.append(repeated(*args))
        return used[-1]

    monkeypatch.setattr(run_module, "repeated", watched)
    found = capture(replace(step, repeats=True), hardware=MACHINE, clock=clock)
    whole = capture(replace(step, repeats=False), hardware=MACHINE, clock=clock)
    assert found == whole
    assert found.to_json() == whole.to_json()
    (stands,) = {each is not None for each in used}
    return stands


@pytest.mark.parametrize(
    ("kind", "depth", "batches", "clock", "stands"),
    [
        # Sixteen layers are the fewest: eleven are recorded, which must be at most 70 %.
        ("plain", 16, 1, "modules", True),
        ("plain", 16, 2, "operators", True),
        ("plain", 15, 1, "operators", False),
        ("turns", 20, 1, "operators", True),
        # Every result is read at the end, which makes sections that differ.
        ("all", 16, 1, "operators", False),
        ("growing", 16, 1, "operators", False),
        ("other", 16, 1, "operators", False),
    ],
)
def test_a_few_layers_stand_for_all_only_if_they_do_the_same(
    kind: str,
    depth: int,
    batches: int,
    clock: str,
    stands: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert both(stack(depth, kind, batches), clock, monkeypatch) is stands


def test_layers_of_transformers_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.device("meta"):
        step = training_step(LLAMA, 1, 8)
    assert both(replace(step, tensors="fake"), "modules", monkeypatch)


def test_the_model_is_as_before() -> None:
    step = stack(16, "plain")
    names = [name for name, _ in step.model.named_modules()]
    capture(replace(step, repeats=True))
    assert [name for name, _ in step.model.named_modules()] == names
