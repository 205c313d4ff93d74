"""Layers that read what others change, for `benchmarks/fuzz_state.py`."""

from __future__ import annotations

import os
import random
import types
from typing import Any

import torch
from state_kinds import Kind, Layer
from torch import nn
from torch.nn import functional

_SCALE = 1.0
_WHEN = ("backward", "step", "backward")


class Told(Layer):
    """A layer something of which the loop changes, now and then."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.inner = nn.Linear(width, width)
        # Not on the layer, whose attributes must not give away that it will change.
        when, every, steps = chance.choice(_WHEN), chance.choice((1, 1, 2, 3)), 0
        self.prepare(chance, width)

        change = self.secret.get("change", self.change)

        def at(now: str) -> None:
            nonlocal steps
            steps += now == "forward"
            if now == when and steps % every == 0:
                change()

        self.secret["at"] = at

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make the state that will change."""

    def change(self) -> None:
        """Change it."""

    def scale(self) -> Any:
        """Return a factor that depends on it."""
        return 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale the output of a linear layer."""
        return torch.tanh(self.inner(x) * self.scale())


class SharedObject(Told):
    """An object with settings."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        self.config = types.SimpleNamespace(inner={"scale": 1.0})

    def change(self) -> None:
        """Change it."""
        self.config.inner["scale"] *= 1.25

    def scale(self) -> Any:
        """Read it."""
        return self.config.inner["scale"]


class OwnAttribute(Told):
    """A number, or a tensor, that is an attribute."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        self.factor: Any = chance.choice((1.0, torch.ones(width)))
        self.in_place = chance.random() < 0.5

    def change(self) -> None:
        """Change it."""
        if self.in_place and isinstance(self.factor, torch.Tensor):
            self.factor.data.mul_(1.25)
        else:
            self.factor = self.factor * 1.25

    def scale(self) -> Any:
        """Read it."""
        return self.factor


class GlobalVariable(Told):
    """A variable of the file."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        global _SCALE
        _SCALE = 1.0

    def change(self) -> None:
        """Change it."""
        global _SCALE
        _SCALE *= 1.25

    def scale(self) -> Any:
        """Read it."""
        return _SCALE


class Closure(Told):
    """A cell of a function."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        factor: Any = torch.ones(width) if chance.random() < 0.5 else 1.0

        def change() -> None:
            nonlocal factor
            factor = factor * 1.25

        self.read = lambda: factor
        self.secret["change"] = change

    def scale(self) -> Any:
        """Read it."""
        return self.read()


class Environment(Told):
    """A variable of the process."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        os.environ["FUZZ_STATE"] = "1"

    def change(self) -> None:
        """Change it."""
        os.environ["FUZZ_STATE"] = str(float(os.environ["FUZZ_STATE"]) * 1.25)

    def scale(self) -> Any:
        """Read it."""
        return float(os.environ["FUZZ_STATE"])


class Weights(Told):
    """Weights, of which autograd is not told that they change."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Draw how."""
        self.name = chance.choice(("bias", "bias", "weight"))
        self.how = chance.choice(("in place", "other"))

    def change(self) -> None:
        """Change it."""
        parameter = getattr(self.inner, self.name)
        if self.how == "in place":
            parameter.data.add_(0.3)
        else:
            parameter.data = parameter.data + 0.3


class LoopBuffer(Told):
    """A buffer that the loop changes: a teacher, a temperature."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        self.register_buffer("factor", torch.ones(width))
        self.how = chance.choice(("in place", "data", "other"))

    def change(self) -> None:
        """Change it."""
        # What was saved and changed in place, autograd refuses: so does plain training.
        if self.how == "data":
            self.factor.data.mul_(1.25)  # type: ignore[operator, union-attr]
        else:
            self.factor = self.factor * 1.25

    def scale(self) -> Any:
        """Read it."""
        return self.factor


class ReplacedFunction(Told):
    """A function that the loop replaces."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        self.act: Any = torch.sin
        self.in_dict = {"act": torch.sin}
        self.hidden = chance.random() < 0.5

    def change(self) -> None:
        """Change it."""
        if self.hidden:
            self.in_dict["act"] = torch.cos if self.in_dict["act"] is torch.sin else torch.sin
        else:
            self.act = torch.cos if self.act is torch.sin else torch.sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return (self.in_dict["act"] if self.hidden else self.act)(self.inner(x))  # type: ignore[no-any-return]


class ReplacedModule(Told):
    """A child that the loop replaces by another one with the same weights."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        self.act: nn.Module = nn.Tanh()

    def change(self) -> None:
        """Change it."""
        self.act = nn.Sigmoid() if isinstance(self.act, nn.Tanh) else nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return self.act(self.inner(x))  # type: ignore[no-any-return]


class SwitchesMode(Told):
    """A part that the loop sets to evaluation and back."""

    def prepare(self, chance: random.Random, width: int) -> None:
        """Make it."""
        self.norm = chance.choice((nn.BatchNorm1d(width), nn.Dropout(0.4)))

    def change(self) -> None:
        """Change it."""
        self.norm.train(not self.norm.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return self.norm(self.inner(x))  # type: ignore[no-any-return]


class Average(Told):
    """Weights that are an average during the forward pass."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        averages = [torch.full_like(each, 0.3) for each in self.inner.parameters()]
        names, whole = ("forward", "backward"), chance.random() < 0.6

        def at(now: str) -> None:
            if now in (names if whole else names[1:]):
                for index, each in enumerate(self.inner.parameters()):
                    each.data, averages[index] = averages[index], each.data

        self.secret["at"] = at


class _Masked(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.mask: Any = None
        self.settings: dict[str, Any] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = self.settings.get("mask", self.mask)
        return torch.tanh(self.linear(x) * mask)


class ParentSets(Layer):
    """Sets the mask of a child that it calls several times."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.child = _Masked(width)
        self.kind = chance.choice(("tensor", "number", "dict"))
        self.calls = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it with a mask each."""
        for call in range(self.calls):
            mask = torch.full((x.shape[1],), 1.0 + call) if self.kind == "tensor" else 1.0 + call
            if self.kind == "dict":
                self.child.settings["mask"] = mask
            else:
                self.child.mask = mask
            x = self.child(x)
        return x


class Hooked(Layer):
    """A forward hook that remembers how often it was called."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.inner = nn.Linear(width, width)
        calls = [0]
        self.secret["seen"] = lambda: calls

        def after(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
            calls[0] += 1
            return output * (1 + calls[0] % 5)

        def before(module: nn.Module, args: Any) -> None:
            calls[0] += 1

        if chance.random() < 0.5:
            self.inner.register_forward_hook(after)
        else:
            self.inner.register_forward_pre_hook(before)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call the hooked one."""
        return torch.tanh(self.inner(x))


class OtherWeights(Layer):
    """Calls a child with weights that are not its own."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.inner = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.gate = nn.Parameter(torch.full((width,), 1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Make them, and call it."""
        weights = {name: each * self.gate for name, each in self.inner.named_parameters()}
        return torch.func.functional_call(self.inner, weights, (x,))  # type: ignore[no-any-return]


class Attention(Layer):
    """Attention whose kernel depends on what the loop has chosen."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to itself."""
        q = x.reshape(1, 1, *x.shape)
        y = functional.scaled_dot_product_attention(q, q * 2, q, dropout_p=0.0)
        return y.reshape(x.shape)


class MakesTensors(Layer):
    """Makes tensors of the default kind."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by one, and return what it was given the kind of."""
        return (x * torch.full((x.shape[1],), 1 / 3)).tanh().to(x.dtype)


KINDS: dict[str, Kind] = {
    "shared object": Kind(SharedObject),
    "attribute set by the loop": Kind(OwnAttribute),
    "global set by the loop": Kind(GlobalVariable),
    "closure set by the loop": Kind(Closure),
    "environment": Kind(Environment),
    "weights by .data": Kind(Weights),
    "buffer set by the loop": Kind(LoopBuffer),
    "function replaced": Kind(ReplacedFunction),
    "module replaced": Kind(ReplacedModule),
    "mode switched": Kind(SwitchesMode),
    "average of weights": Kind(Average),
    "mask set by the parent": Kind(ParentSets),
    "forward hook": Kind(Hooked),
    "functional_call": Kind(OtherWeights),
    "pure: attention": Kind(Attention, pure=True),
    "pure: makes tensors": Kind(MakesTensors, pure=True),
}
