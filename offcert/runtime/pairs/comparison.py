"""Two copies of a network take a step each; everything must be the same to the last bit."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import nn

from offcert.runtime.capture.borrowed import random_state_kept
from offcert.runtime.workloads.turns import Turns

# Runs a forward and a backward pass and returns the loss, if there is one to return.
Pass = Callable[[], torch.Tensor | None]


@dataclass(frozen=True)
class Comparison:
    """One optimiser step of both copies; attributes as in `StepComparison`."""

    plain_loss: float | None
    planned_loss: float | None
    differences: tuple[str, ...]
    plain_seconds: float
    planned_seconds: float


class Pair:
    """Two copies of a network, with their optimisers, that are to stay the same.

    Turns bring each to a device while it is trained; everything is compared on the host.
    """

    def __init__(
        self,
        plain: nn.Module,
        planned: nn.Module,
        optimisers: tuple[torch.optim.Optimizer, torch.optim.Optimizer],
        turns: Turns | None = None,
    ) -> None:
        self._plain = plain
        self._planned = planned
        self._optimisers = optimisers
        self._turns = Turns(torch.device("cpu")) if turns is None else turns

    def step(self, run_plain: Pass, run_planned: Pass) -> Comparison:
        """Take one optimiser step with both, from the same random state, and compare everything."""
        for optimiser in self._optimisers:
            optimiser.zero_grad()
        state = RandomState.now()
        plain_loss, plain_seconds = self._timed(self._plain, self._optimisers[0], run_plain)
        after_plain = RandomState.now()
        state.restore()
        planned_loss, planned_seconds = self._timed(self._planned, self._optimisers[1], run_planned)
        differences = []
        if not same_bits(plain_loss, planned_loss):
            differences.append("loss")
        if not after_plain.is_same(RandomState.now()):
            differences.append("random state")
        differences += self._differences("gradient of", _gradients)
        for model, optimiser in zip((self._plain, self._planned), self._optimisers, strict=True):
            with self._turns.turn(model, optimiser):
                optimiser.step()
        differences += self._differences("parameter", lambda network: network.named_parameters())
        differences += self._differences("buffer", lambda network: network.named_buffers())
        return Comparison(
            _number(plain_loss),
            _number(planned_loss),
            tuple(differences),
            plain_seconds,
            planned_seconds,
        )

    def _timed(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, run: Pass
    ) -> tuple[torch.Tensor | None, float]:
        with self._turns.turn(model, optimiser):
            begun = time.perf_counter()
            loss = run()
            seconds = time.perf_counter() - begun
        return loss, seconds

    def _differences(
        self, what: str, named: Callable[[nn.Module], Iterator[tuple[str, torch.Tensor | None]]]
    ) -> list[str]:
        ours, theirs = dict(named(self._plain)), dict(named(self._planned))
        # A step may make buffers, or drop them.
        names = [*ours, *(name for name in theirs if name not in ours)]
        return [
            f"{what} {name}" for name in names if not same_bits(ours.get(name), theirs.get(name))
        ]


def _gradients(network: nn.Module) -> Iterator[tuple[str, torch.Tensor | None]]:
    return ((name, parameter.grad) for name, parameter in network.named_parameters())


def _number(loss: torch.Tensor | None) -> float | None:
    return None if loss is None else loss.item()


def same_bits(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    """Whether two tensors are the same to the last bit, or both missing."""
    if first is None or second is None:
        return first is second
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.layout is not torch.strided:
        return bool(torch.equal(first, second))
    # Comparing bytes tells 0 from -0 and finds equal NaNs equal.
    return torch.equal(_bytes(first), _bytes(second))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    # A tensor with a dimension of one is contiguous whatever the stride there.
    return tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


@dataclass(frozen=True)
class RandomState:
    """The states of all generators that models use without asking."""

    torch: torch.Tensor
    python: Any
    numpy: Any
    cuda: tuple[Any, ...] = ()

    @classmethod
    def now(cls) -> RandomState:
        """Return the states as they are."""
        return cls(
            torch.get_rng_state(),
            random.getstate(),
            copy.deepcopy(numpy.random.get_state()),
            tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else (),
        )

    def restore(self) -> None:
        """Go back to these states."""
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        numpy.random.set_state(self.numpy)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)

    def is_same(self, other: RandomState) -> bool:
        """Whether two states are equal."""
        return (
            torch.equal(self.torch, other.torch)
            and self.python == other.python
            and all(numpy.array_equal(a, b) for a, b in zip(self.numpy, other.numpy, strict=True))
            and all(torch.equal(a, b) for a, b in zip(self.cuda, other.cuda, strict=False))
        )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators that models use without asking, and put them back after the block."""
    with random_state_kept():
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        yield
