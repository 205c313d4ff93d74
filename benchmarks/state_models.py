"""Random models of layers with states, and which parts of them run again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy
import state_hidden
import state_kinds
import state_layers
import state_outside
import state_parts
import torch
from state_kinds import Layer, Watched, watched
from state_parts import with_late
from torch import nn

from offcert.runtime.segments.placed import Kept, PlacedProgram, PlacedSegment

_FILES = (state_layers, state_outside, state_kinds, state_hidden, state_parts)
KINDS = with_late({name: kind for each in _FILES for name, kind in each.KINDS.items()})
PURE = [name for name, kind in KINDS.items() if kind.pure]
WIDTH, BATCH = 4, 6


class Block(nn.Module):
    """Layers with states between two linear ones."""

    def __init__(self, width: int, layers: list[Layer]) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.layers = nn.ModuleList(layers)
        self.second = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run them."""
        y = torch.tanh(self.first(x))
        for layer in self.layers:
            y = layer(y)
        return torch.tanh(self.second(y)) + x


class Row(nn.Module):
    """Blocks in an `nn.Sequential`."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run them."""
        return self.blocks(x)  # type: ignore[no-any-return]


class Called(nn.Module):
    """Blocks that the model's own code calls, in some order, some of them several times."""

    def __init__(self, blocks: list[nn.Module], order: list[int]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call them."""
        for index in self.order:
            x = self.blocks[index](x)
        return x


@dataclass(frozen=True)
class Drawn:
    """The recipe of a model; every `build` makes the same one anew.

    Attributes
    ----------
    kinds : tuple of tuple of str
        Of the layers of each block.
    order : tuple of int
        In which the blocks are called; they are in a row if there is none.
    shared : bool
        Whether a layer may be in several blocks.
    """

    kinds: tuple[tuple[str, ...], ...]
    order: tuple[int, ...]
    shared: bool
    seed: int

    @property
    def pure(self) -> bool:
        """Whether everything in it must be allowed to run again."""
        return all(KINDS[name].pure for names in self.kinds for name in names)

    @property
    def late(self) -> bool:
        """Whether something acts late only."""
        return any(KINDS[name].late for names in self.kinds for name in names)

    def build(self) -> tuple[nn.Module, list[Watched]]:
        """Return the model and its layers with states, and set all random generators."""
        chance = random.Random(self.seed)
        torch.manual_seed(self.seed)
        numpy.random.seed(self.seed % 2**32)
        random.seed(self.seed)
        made: dict[str, Layer] = {}
        layers: list[list[Layer]] = []
        found: list[Watched] = []
        for names in self.kinds:
            row: list[Layer] = []
            for name in names:
                again = self.shared and name in made
                row.append(made[name] if again else KINDS[name].make(chance, WIDTH))
                made[name] = row[-1]
                if not again:
                    found.append(watched(name, row[-1]))
            layers.append(row)
        blocks: list[nn.Module] = [Block(WIDTH, row) for row in layers]
        model = Called(blocks, list(self.order)) if self.order else Row(blocks)
        return model, found


def draw(chance: random.Random, kinds: list[str]) -> Drawn:
    """Draw a model with layers of some kinds, mostly among pure ones."""
    number = chance.choice((2, 2, 3))
    rows: list[list[str]] = [[] for _ in range(number)]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        chance.choice(rows).append(chance.choice(kinds))
    for row in rows:
        if chance.random() < 0.4:
            row.insert(chance.randint(0, len(row)), chance.choice(PURE))
    order: tuple[int, ...] = ()
    if chance.random() < 0.5:
        order = tuple(range(number))
        if chance.random() < 0.4:
            order += (chance.randrange(number),)
    return Drawn(tuple(map(tuple, rows)), order, chance.random() < 0.3, chance.randrange(2**31))


def program_for(chance: random.Random, drawn: Drawn) -> PlacedProgram:
    """Draw calls that run again: of blocks, of layers in them, of several blocks as one."""
    calls: dict[int, int] = {}
    order = []
    for index in drawn.order or range(len(drawn.kinds)):
        order.append((f"blocks.{index}", calls.setdefault(index, 0), index))
        calls[index] += 1
    # Whose names are those of others cannot be named twice.
    named = not (drawn.shared and len(set(sum(drawn.kinds, ()))) < len(sum(drawn.kinds, ())))
    segments: list[PlacedSegment] = []
    if chance.random() < 0.25:
        return PlacedProgram([_together(chance, drawn, order)])
    while not segments:
        for path, call, index in order:
            inner: list[PlacedSegment] = []
            for place in range(len(drawn.kinds[index]) if named else 0):
                if chance.random() < 0.4:
                    inner.append(PlacedSegment(f"{path}.layers.{place}", call))
            if chance.random() < 0.2:
                segments += inner
            elif chance.random() < 0.75:
                kept = (Kept("enter", f"{path}.first", call),) if chance.random() < 0.2 else ()
                inner = inner if chance.random() < 0.3 else []
                segments.append(PlacedSegment(path, call, kept=kept, inner=tuple(inner)))
    return PlacedProgram(segments)


def _together(
    chance: random.Random, drawn: Drawn, order: list[tuple[str, int, int]]
) -> PlacedSegment:
    first = chance.randrange(len(order) - 1)
    last = chance.randint(first + 1, len(order) - 1)
    if not drawn.order:
        return PlacedSegment("blocks", children=(str(first), str(last)))
    line: tuple[Any, ...] = tuple((path, call) for path, call, _ in order[first : last + 1])
    return PlacedSegment(*line[0], line=line)
