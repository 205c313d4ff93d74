"""Layers that remember something in a way of their own, for `benchmarks/fuzz_state.py`."""

from __future__ import annotations

import functools
import os
import random
import tempfile
from typing import Any

import numpy
import torch
from state_kinds import Kind, Layer
from torch import nn
from torch.nn.utils import parametrizations


class Rebound(Layer):
    """A moving average that is another tensor after every call."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.mean = torch.zeros(width)
        self.secret["seen"] = lambda: self.mean

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Subtract it."""
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class Memory(Layer):
    """A layer whose last result goes into the next call."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.h: torch.Tensor | None = None
        self.secret["seen"] = lambda: self.h

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go on from where the last call ended."""
        h = torch.tanh(x if self.h is None else x + 0.5 * self.h.mean(0))
        self.h = h.detach()
        return h


class InPlace(Layer):
    """A tensor that is no buffer, changed in place."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.total = torch.ones(width)
        self.secret["seen"] = lambda: self.total

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale by it."""
        with torch.no_grad():
            self.total.mul_(0.9).add_(x.detach().abs().mean(0), alpha=0.1)
        return x / self.total.clone()


class Momentum(Layer):
    """A buffer that is replaced, and one that is changed in place."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("total", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Subtract it."""
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.total.add_(1)  # type: ignore[operator]
        return (x - self.mean) / self.total.clone()


class LargeBuffer(Layer):
    """A large buffer that is changed at some calls only."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.register_buffer("large", torch.ones(2**14 + 16))
        self.every, self.calls = chance.choice((2, 3)), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale by some of it."""
        self.calls += 1
        if self.calls % self.every == 0:
            self.large.mul_(1.1)  # type: ignore[operator]
        return x * self.large[: x.shape[1]].clone()  # type: ignore[index]


class UnregisteredNorm(Layer):
    """A batch norm in a list or a dictionary, which is no child."""

    def __init__(self, chance: random.Random, width: int, holder: str = "list") -> None:
        super().__init__(chance, width)
        norm = nn.BatchNorm1d(width)
        self.norms = [norm] if holder == "list" else {0: {"norm": norm}}
        self.nested = holder != "list"
        self.secret["seen"] = lambda: [
            norm.running_mean,
            norm.running_var,
            norm.num_batches_tracked,
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise."""
        norm: Any = self.norms[0]
        return (norm["norm"] if self.nested else norm)(x)  # type: ignore[no-any-return]


class Log(Layer):
    """Writes down what it has seen."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.log: list[Any] = []
        self.tensors = chance.random() < 0.5
        self.secret["seen"] = lambda: self.log

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Note the mean."""
        mean = x.detach().mean()
        self.log.append(mean if self.tensors else mean.item())
        return torch.sigmoid(x)


class Scalars(Layer):
    """Counts in an attribute that is a number, and scales by what it saw last."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.calls, self.scale = 0, 1.0
        self.secret["seen"] = lambda: (self.calls, self.scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale."""
        self.calls += 1
        y = x / self.scale * (1 + self.calls % 3)
        self.scale = 1 + x.abs().mean().item()
        return y


class ScalarOfState(Layer):
    """Scales by a Python number out of a tensor that is rebound."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.peak = torch.ones(())
        self.secret["seen"] = lambda: self.peak

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale."""
        self.peak = torch.maximum(self.peak * 1.01, x.detach().abs().max())
        return x * (1.0 / self.peak.item())


class Cached(Layer):
    """A cache of results, which has an effect whenever it does not know."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        made: list[int] = []
        size = chance.choice((1, 2, None))

        @functools.lru_cache(maxsize=size)
        def scale(key: int) -> float:
            made.append(key)
            return 1 + len(made) / 8

        self.function = scale
        self.calls = 0
        self.secret["seen"] = lambda: made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale by what the cache says."""
        self.calls += 1
        return x * self.function(self.calls % 3)


class CacheInfo(Layer):
    """Scales by how often a cache was asked."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.function = functools.lru_cache(lambda key: key)
        self.secret["seen"] = lambda: self.function.cache_info()[:2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Ask."""
        self.function(1)
        return x * (1 + self.function.cache_info().hits % 4)


class Noise(Layer):
    """Reads noise from a file: as from a device, nothing brings back what has been read."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self.file.write(random.Random(7).randbytes(4096))
        self.file.flush()
        os.lseek(self.file.fileno(), 0, os.SEEK_SET)
        self.secret["seen"] = lambda: os.lseek(self.file.fileno(), 0, os.SEEK_CUR)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale by it."""
        return x * (1 + os.read(self.file.fileno(), 1)[0] / 256)


class Entropy(Layer):
    """Reads noise which is another one in every backward pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale by it."""
        backward = torch._C._current_graph_task_id() != -1
        return x * (1 + os.urandom(1)[0] / 100 if backward else 1.5)


class OwnGenerators(Layer):
    """A generator of its own in an attribute."""

    def __init__(self, chance: random.Random, width: int, kind: str = "torch") -> None:
        super().__init__(chance, width)
        if kind == "torch":
            self.generator: Any = torch.Generator().manual_seed(5)
        elif kind == "numpy":
            self.generator = numpy.random.default_rng(5)
        else:
            self.generator = random.Random(5)
        self.secret["seen"] = lambda: self.generator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add noise."""
        if isinstance(self.generator, torch.Generator):
            return x + torch.randn(x.shape, generator=self.generator)
        return x * (1 + self.generator.random())


class StochasticDepth(Layer):
    """Left out by chance: Python's, NumPy's or PyTorch's."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.inner = nn.Linear(width, width)
        self.by = chance.choice(("python", "numpy", "torch"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Perhaps call it."""
        if self.by == "python":
            out = random.random() < 0.4
        elif self.by == "numpy":
            out = numpy.random.rand() < 0.4
        else:
            out = torch.rand(()).item() < 0.4
        return x if out else x + torch.tanh(self.inner(x))


class Grows(Layer):
    """Gets one more layer at some calls, or an attribute that it did not have."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.extra = nn.ModuleList()
        self.calls = 0
        names = ("note2", "note5", "note8")
        self.secret["seen"] = lambda: [len(self.extra), *(hasattr(self, name) for name in names)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call all of them."""
        self.calls += 1
        if self.calls % 3 == 2:
            self.extra.append(nn.Tanh())
            setattr(self, f"note{self.calls}", [self.calls])
        for each in self.extra:
            x = each(x)
        return x


class ClampsWeights(Layer):
    """Changes its own weights in the forward pass."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.inner = nn.Linear(width, width)
        self.by_data = chance.random() < 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shrink them first."""
        if self.by_data:
            self.inner.weight.data.mul_(0.97)
        else:
            with torch.no_grad():
                self.inner.weight.mul_(0.97)
        return torch.tanh(self.inner(x))


class TogglesTraining(Layer):
    """Every other call of its norm is one in evaluation."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise."""
        y = self.norm(x)
        self.norm.train(not self.norm.training)
        return y  # type: ignore[no-any-return]


class Pure(Layer):
    """Ordinary layers, of which nothing is to be refused."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        makers = (
            lambda: nn.Dropout(0.3),
            lambda: nn.BatchNorm1d(width),
            lambda: nn.LayerNorm(width),
            nn.GELU,
            lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True)),
            lambda: parametrizations.weight_norm(nn.Linear(width, width)),
        )
        self.inner = chance.choice(makers)()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return self.inner(x)  # type: ignore[no-any-return]


class SpectralNorm(Pure):
    """A weight whose parametrization has buffers."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.inner = parametrizations.spectral_norm(nn.Linear(width, width))


class Awkward(Layer):
    """Values that are no numbers, and tensors that do not lie as usual."""

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__(chance, width)
        self.nan = chance.random() < 0.4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Make some."""
        y = torch.tanh(x.t()).t() if x.dim() == 2 else x
        return torch.log(y + 0.3) if self.nan else y * x.expand_as(y)


KINDS: dict[str, Kind] = {
    "pure": Kind(Pure, pure=True),
    "pure: scalar attributes": Kind(Scalars, pure=True),
    "pure: small buffers": Kind(Momentum, pure=True),
    "pure: spectral norm": Kind(SpectralNorm, pure=True),
    "pure: stochastic depth": Kind(StochasticDepth, pure=True),
    "pure: awkward values": Kind(Awkward, pure=True),
    "tensor rebound": Kind(Rebound),
    "memory over steps": Kind(Memory),
    "tensor in place": Kind(InPlace),
    "number out of a tensor": Kind(ScalarOfState),
    "large buffer, at times": Kind(LargeBuffer),
    "bn_in_list": Kind(UnregisteredNorm),
    "bn_in_dict": Kind(functools.partial(UnregisteredNorm, holder="dict")),
    "log": Kind(Log),
    "lru_cache": Kind(Cached),
    "cache_info": Kind(CacheInfo),
    "noise from a file": Kind(Noise),
    "entropy": Kind(Entropy),
    "own torch generator": Kind(OwnGenerators),
    "own numpy generator": Kind(functools.partial(OwnGenerators, kind="numpy")),
    "own python generator": Kind(functools.partial(OwnGenerators, kind="python")),
    "module that grows": Kind(Grows),
    "weights changed by forward": Kind(ClampsWeights),
    "training toggled by forward": Kind(TogglesTraining),
}
