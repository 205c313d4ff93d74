"""Layers that leave something for each other, and layers that act at times only."""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Mapping
from typing import Any

import torch
from state_kinds import Kind, Layer, watched
from torch import nn


class Side(Layer):
    """A loss beside the output, in an attribute that the loop adds to its own loss."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.inner = nn.Linear(width, width)
        self.side: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Leave it."""
        y = self.inner(x)
        self.side = y.abs().mean()
        return torch.tanh(y)

    def beside(self) -> torch.Tensor | None:
        """Return it."""
        return self.side


class SideInList(Side):
    """A loss beside the output, in a list that the loop empties."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.found: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Leave it."""
        y = self.inner(x)
        self.found.append(y.abs().mean())
        return torch.tanh(y)

    def beside(self) -> torch.Tensor | None:
        """Return the sum, and forget it."""
        found, self.found[:] = list(self.found), []
        return torch.stack(found).sum() if found else None


class _Writes(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, given: Any) -> torch.Tensor:
        given.calls += 1
        given.found.append(given.calls)
        return torch.tanh(self.linear(x) * given.scale)


class GivenObject(Layer):
    """A child writes into an object that it is given, and the parent changes what it reads."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.child = _Writes(width)
        self.fresh = chance.random() < 0.5
        self.secret["seen"] = lambda: self.given
        self.given = types.SimpleNamespace(calls=0, found=[], scale=1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it twice."""
        given = self.given
        if self.fresh:
            given = types.SimpleNamespace(calls=0, found=[], scale=1.0)
        for scale in (1.0, 1.5):
            given.scale = scale
            x = self.child(x, given)
        return x * (1 + given.calls % 5)


class _Leaves(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.latest: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.latest = torch.tanh(self.linear(x))
        return self.latest


class _Reads(nn.Module):
    def __init__(self, width: int, other: _Leaves) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.others = [other]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        latest = self.others[0].latest
        assert latest is not None
        return torch.tanh(self.linear(x) * latest)


class Neighbours(Layer):
    """A child reads what another one has left in an attribute."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.first = _Leaves(width)
        self.second = _Reads(width, self.first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call both."""
        return self.second(self.first(x))  # type: ignore[no-any-return]


class _Owner:
    """Somebody who knows how often its parts were called."""

    def __init__(self) -> None:
        self.calls = 0


class TellsParent(Layer):
    """Counts in whoever holds it."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        owner = _Owner()
        self.child = nn.Tanh()
        self.child.owner = owner  # type: ignore[assignment]
        self.child.register_forward_pre_hook(_count)
        self.reads = chance.random() < 0.5
        self.secret["seen"] = lambda: owner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call the child."""
        y = self.child(x)
        return y * (1 + self.child.owner.calls % 4) if self.reads else y  # type: ignore[union-attr, operator]


def _count(module: Any, args: Any) -> None:
    module.owner.calls += 1


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor, ctx.shape = factor, x.shape
        ctx.save_for_backward(x)
        return x.sin() * factor

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * x.cos() * ctx.factor, None


class Custom(Layer):
    """A function with its own backward pass, which may remember a count on the context."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return _Scale.apply(x, 1.5)  # type: ignore[no-any-return]


class _Remembers(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        _Remembers.calls += 1
        ctx.factor = 1 + _Remembers.calls % 3
        return x.sin() * ctx.factor

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * ctx.factor


class FunctionState(Layer):
    """A function with its own backward pass that counts in its class."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        _Remembers.calls = 0
        self.secret["seen"] = lambda: _Remembers.calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return _Remembers.apply(x)  # type: ignore[no-any-return]


class TrainsWithin(Layer):
    """Trains a part of itself in its forward pass."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.probe = nn.Linear(width, 1)
        self.optimiser = torch.optim.SGD(self.probe.parameters(), lr=0.1, momentum=0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take a step of its own."""
        with torch.enable_grad():
            loss = self.probe(x.detach()).square().mean()
            gradients = torch.autograd.grad(loss, list(self.probe.parameters()))
        for parameter, gradient in zip(self.probe.parameters(), gradients, strict=True):
            parameter.data = parameter.data - 0.1 * gradient
        return x * torch.sigmoid(self.probe(x).detach())


class Later(Layer):
    """Another layer that does nothing at first, or at most calls."""

    def __init__(
        self, chance: random.Random, width: int, kinds: Mapping[str, Kind], late: bool
    ) -> None:
        super().__init__(chance, width)
        name = chance.choice([name for name, kind in kinds.items() if not kind.pure])
        self.inner = kinds[name].make(chance, width)
        inner = watched(name, self.inner)
        self.after = 8 if late else 0
        self.every = chance.choice((1, 2)) if late else chance.choice((2, 3, 5))
        self.calls = 0
        steps = 0

        def at(when: str) -> None:
            nonlocal steps
            steps += when == "forward"
            if not late or steps > 8:
                inner.at(when)

        self.secret |= {"at": at, "seen": inner.seen, "end": inner.end}

    def beside(self) -> torch.Tensor | None:
        """Return the loss of the other one."""
        return self.inner.beside()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it if it is time to."""
        self.calls += 1
        if self.calls <= self.after or self.calls % self.every:
            return x
        return self.inner(x)  # type: ignore[no-any-return]


KINDS: dict[str, Kind] = {
    "pure: autograd function": Kind(Custom, pure=True),
    "side loss": Kind(Side),
    "side loss in a list": Kind(SideInList),
    "object that is given": Kind(GivenObject),
    "result of a neighbour": Kind(Neighbours),
    "counted by a hook": Kind(TellsParent),
    "autograd function that counts": Kind(FunctionState),
    "trains within": Kind(TrainsWithin),
}


def with_late(kinds: dict[str, Kind]) -> dict[str, Kind]:
    """Return these kinds, and that any of them acts late or at times."""
    at_times = functools.partial(Later, kinds=kinds, late=False)
    late = functools.partial(Later, kinds=kinds, late=True)
    return {
        **kinds,
        "late: any kind": Kind(late, late=True),
        "late: any other kind": Kind(late, late=True),
        "at times: any kind": Kind(at_times, late=True),
    }
