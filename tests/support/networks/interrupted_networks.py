"""Networks in whose operations it matters what happens when, once parts of them run again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class Function(nn.Module):
    """A layer, what activates it, and a function of what that returns."""

    def __init__(
        self, function: Callable[[torch.Tensor], torch.Tensor], first: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6) if first is None else first
        self.function = function
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call them."""
        return self.function(self.act(self.first(x)))


def network(*blocks: tuple) -> nn.Sequential:
    """Return blocks of a function and, if it is not a linear one, a layer."""
    torch.manual_seed(0)
    return nn.Sequential(*(Function(*each) for each in blocks))


def doubled(x: torch.Tensor) -> torch.Tensor:
    """Make twice the bytes backward before the result of tanh is asked for."""
    return torch.tanh(x.double()).float() + x


def changed(x: torch.Tensor) -> torch.Tensor:
    """Let what is given die before tanh takes memory, unless somebody keeps it."""
    return torch.tanh(x.clone().mul_(0.5).add_(x))
