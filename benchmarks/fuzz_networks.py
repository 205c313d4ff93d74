"""Random small networks for `benchmarks/fuzz_runtime.py`: everything that moves tensors astray."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Function = Callable[[torch.Tensor], torch.Tensor]

# What saves tensors between modules, in all the ways in which they lie in storages.
FUNCTIONS: tuple[Function, ...] = (
    torch.tanh,
    lambda x: torch.exp(-x * x),
    lambda x: torch.sigmoid(x) * x,
    lambda x: torch.tanh(x.transpose(0, 1)).transpose(0, 1) * x,
    lambda x: torch.tanh(x[:, :1]).expand_as(x) * x,
    lambda x: torch.cat([torch.sin(half) for half in x.chunk(2, dim=1)], dim=1),
    lambda x: torch.tanh(x.clone().mul_(0.5).add_(x)),
    lambda x: x * torch.sigmoid(x.mean()) + torch.exp(x[:, x.shape[1] :]).sum(),
    lambda x: torch.tanh(x.double()).to(x.dtype) + x,
    lambda x: x.masked_fill(x > 0.5, 0.5) * torch.relu(x),
)


class Apply(nn.Module):
    """A function as a module, or as a part of its parent's forward pass."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return self.function(x)


class Block(nn.Module):
    """Layers, perhaps one of them twice, with functions between them, around which is a skip."""

    def __init__(
        self, layers: list[nn.Module], order: list[int], between: dict[int, Function], skip: str
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.order = order
        self.between = between
        self.skip = skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layers."""
        y = x
        for place, index in enumerate(self.order):
            y = self.layers[index](y)
            if place in self.between:
                y = self.between[place](y)
        if self.skip == "add":
            return x + y
        if self.skip == "add in place":
            # A result of its own: what the last layer returns may be saved as it is.
            return (y * 1).add_(x)
        return x * y if self.skip == "times" else y


class Random(nn.Module):
    """Blocks one after the other; a second input, if there is one, joins in the middle."""

    def __init__(self, blocks: list[nn.Module], joins: int | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.joins = joins

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        """Run the blocks."""
        for index, block in enumerate(self.blocks):
            if index == self.joins and other is not None:
                x = x * torch.sigmoid(other) + other
            x = block(x)
        return x


def random_network(chance: random.Random) -> tuple[Random, tuple[int, ...]]:
    """Return a network, and the shape of its inputs."""
    torch.manual_seed(chance.randrange(2**31))
    images = chance.random() < 0.5
    width = chance.choice((4, 6, 8))
    shape: tuple[int, ...] = (chance.randint(2, 3), width)
    if images:
        side = chance.choice((3, 4))
        shape = (*shape, side, side)
    count = chance.randint(1, 3)
    blocks: list[nn.Module] = [_block(chance, width, images) for _ in range(count)]
    if chance.random() < 0.3:
        # The same one again: its parameters are tied, and its path is called twice.
        blocks.insert(chance.randrange(count), blocks[chance.randrange(count)])
    if not any(True for block in blocks for _ in block.parameters()):
        # Something has to be trained.
        blocks.append(nn.Conv2d(width, width, 1) if images else nn.Linear(width, width))
    joins = chance.randrange(len(blocks)) if chance.random() < 0.4 else None
    return Random(blocks, joins), shape


def _block(chance: random.Random, width: int, images: bool) -> Block:
    layers = [_layer(chance, width, images) for _ in range(chance.randint(1, 4))]
    order = list(range(len(layers)))
    if chance.random() < 0.2:
        order.append(chance.choice(order))
    places = [place for place in range(len(order)) if chance.random() < 0.3]
    between = {place: chance.choice(FUNCTIONS) for place in places}
    skip = chance.choice(("", "add", "add in place", "times"))
    return Block(layers, order, between, skip)


def _layer(chance: random.Random, width: int, images: bool) -> nn.Module:
    makers: list[Callable[[], nn.Module]] = [
        lambda: nn.Dropout(0.2),
        lambda: nn.GELU(),
        lambda: nn.Tanh(),
        lambda: Apply(chance.choice(FUNCTIONS)),
    ]
    if images:
        makers += 3 * [lambda: nn.Conv2d(width, width, 3, padding=1)]
        makers += 2 * [lambda: nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(inplace=True))]
        makers += [lambda: nn.GroupNorm(2, width), lambda: nn.MaxPool2d(3, 1, 1)]
    else:
        makers += 3 * [lambda: nn.Linear(width, width)]
        makers += 2 * [lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True))]
        makers += [lambda: nn.LayerNorm(width), lambda: nn.BatchNorm1d(width)]
    return chance.choice(makers)()


def inputs_of(network: Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return random inputs."""
    return tuple(torch.randn(shape) for _ in range(1 if network.joins is None else 2))
