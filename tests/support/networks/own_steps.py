"""Models and training steps of one's own, which tests name as users do, by a string."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from offcert.runtime.capture.step import TrainingStep


class TwoInputs(nn.Module):
    """Two inputs by name, a dictionary of two outputs, a module that is called twice."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.shared = nn.Linear(width, width)
        self.drop = nn.Dropout(0.2)
        self.norm = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, 3)

    def forward(self, left: torch.Tensor, *, right: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.tanh(self.shared(torch.tanh(self.first(left))))
        hidden = self.norm(self.drop(torch.sigmoid(self.shared(hidden))))
        return {"logits": self.last(hidden), "penalty": (hidden * right).mean()}


def two_inputs(width: int = 32, optimiser: str | None = None) -> TrainingStep:
    """Return a step with its own loss over dictionaries, and a fresh batch at every call."""
    model = TwoInputs(width)

    def batch() -> dict[str, torch.Tensor]:
        return {
            "left": torch.randn(64, 8),
            "right": torch.randn(64, width),
            "labels": torch.randint(3, (64,)),
        }

    def run(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        out = model(batch["left"], right=batch["right"])
        return functional.cross_entropy(out["logits"], batch["labels"]) + out["penalty"]

    chosen: Any = None if optimiser is None else getattr(torch.optim, optimiser)
    return TrainingStep(model, run, batch, chosen and chosen(model.parameters(), lr=0.01))


class Branching(nn.Module):
    """Looks at values: fake tensors have none."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 64)
        self.norm = nn.BatchNorm1d(64)
        self.down = nn.Linear(64, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        hidden = self.norm(self.up(x))
        if hidden.sum() > 1e9:
            hidden = -hidden
        return self.down(torch.sigmoid(hidden).tanh())


def branching() -> nn.Module:
    """Return a network with control flow on values."""
    return Branching()


def backward_inside() -> TrainingStep:
    """Return a step that runs the backward pass itself, over a fixed batch, in two parts."""
    model = nn.Sequential(nn.Linear(8, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Tanh())

    def run(model: nn.Module, batch: torch.Tensor) -> None:
        for part in batch.chunk(2):
            model(part).square().mean().backward()

    return TrainingStep(model, run, torch.linspace(-1, 1, 64 * 8).reshape(64, 8))


def forgets_its_model() -> TrainingStep:
    """Return a step that trains its own model whatever it is given."""
    model = nn.Sequential(nn.Linear(8, 32), nn.Sigmoid(), nn.Linear(32, 3))
    return TrainingStep(model, lambda _, x: model(x).sum(), lambda: torch.randn(16, 8))


def layer_drop() -> TrainingStep:
    """Return a step whose batch and path Python's own generator draws."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))

    def run(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return model(batch).mean() * random.random()

    return TrainingStep(model, run, lambda: torch.full((4, 8), random.random()))


def not_a_module() -> int:
    """Return neither a module nor a step."""
    return 3
