"""Training loops for `benchmarks/fuzz_state.py`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from state_compare import Moment, moment
from state_kinds import Watched
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class UserError(Exception):
    """Raised by the user's own code, and caught there."""


@dataclass
class Turn:
    """One run of a training, plain or planned.

    Attributes
    ----------
    model : nn.Module
        What the loop trains.
    layers : list of Watched
        Its layers with states, which are told when something begins.
    moments : list of Moment
        What there was after each step and around each backward pass.
    tell : callable
        Called after each step.
    hear : callable
        Called before something is noted.
    """

    model: nn.Module
    layers: list[Watched]
    optimiser: torch.optim.Optimizer
    tell: Callable[[], None] = lambda: None
    hear: Callable[[], None] = lambda: None
    moments: list[Moment] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)

    def at(self, when: str) -> None:
        """Tell all layers."""
        for each in self.layers:
            each.at(when)

    def note(self) -> None:
        """Take note of everything."""
        self.hear()
        self.moments.append(moment(self.model, self.layers, self.losses))

    def backward(self, loss: torch.Tensor, **options: Any) -> None:
        """Run a backward pass."""
        self.at("backward")
        self.losses = [loss.detach()]
        self.note()
        loss.backward(**options)
        self.note()

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        """Run a forward pass."""
        self.at("forward")
        loss = _mean(self.model(batch))
        beside = [each.layer.beside() for each in self.layers]
        return sum((each for each in beside if each is not None), loss)


def _mean(output: torch.Tensor) -> torch.Tensor:
    return output.float().square().mean()


Loop = Callable[[Turn, torch.Tensor], None]


def plain(turn: Turn, batch: torch.Tensor) -> None:
    """Forward, backward."""
    turn.backward(turn.loss(batch))


def accumulating(turn: Turn, batch: torch.Tensor) -> None:
    """Two halves of a batch, one after the other."""
    for half in batch.chunk(2):
        turn.backward(turn.loss(half) / 2)


def two_forwards(turn: Turn, batch: torch.Tensor) -> None:
    """Two forward passes before one backward pass."""
    first = turn.loss(batch)
    turn.backward(first + turn.loss(-batch))


def evaluating(turn: Turn, batch: torch.Tensor) -> None:
    """An evaluation between forward and backward, and one after."""
    loss = turn.loss(batch)
    turn.model.eval()
    with torch.no_grad():
        found = turn.model(batch * 0.5).float().mean()
    turn.model.train()
    turn.backward(loss)
    with torch.no_grad():
        turn.losses = [found, turn.model(batch * 0.25).float().mean()]


def retained(turn: Turn, batch: torch.Tensor) -> None:
    """Two backward passes through one graph."""
    loss = turn.loss(batch)
    turn.backward(loss, retain_graph=True)
    turn.backward(loss)


def second_derivatives(turn: Turn, batch: torch.Tensor) -> None:
    """A gradient penalty."""
    batch = batch.clone().requires_grad_()
    loss = turn.loss(batch)
    turn.at("backward")
    (gradient,) = torch.autograd.grad(loss, batch, create_graph=True)
    turn.backward(loss + gradient.square().mean())


def by_grad(turn: Turn, batch: torch.Tensor) -> None:
    """Gradients that are returned, and then written by the loop."""
    loss = turn.loss(batch)
    turn.at("backward")
    parameters = [p for p in turn.model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    turn.losses = [loss.detach()]


def raising(turn: Turn, batch: torch.Tensor) -> None:
    """A forward pass that the user's code gives up, and another one."""

    def give_up(*_: Any) -> None:
        raise UserError

    modules = list(turn.model.modules())
    handle = modules[len(modules) // 2].register_forward_pre_hook(give_up)
    try:
        turn.loss(batch)
    except UserError:
        pass
    finally:
        handle.remove()
    turn.backward(turn.loss(batch))


def forgetting(turn: Turn, batch: torch.Tensor) -> None:
    """A forward pass without a backward pass first."""
    turn.losses = [turn.loss(batch * 0.5).detach()]
    turn.backward(turn.loss(batch))


def changing_batch(turn: Turn, batch: torch.Tensor) -> None:
    """The batch is filled with something else before the backward pass."""
    batch = batch.clone()
    loss = turn.loss(batch)
    batch.data.mul_(0.5)
    turn.backward(loss)


def inner_step(turn: Turn, batch: torch.Tensor) -> None:
    """Weights after a step of training within, as in meta-learning."""
    names, parameters = zip(*turn.model.named_parameters(), strict=True)
    loss = turn.loss(batch)
    found = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    fast = {
        name: each if gradient is None else each - 0.1 * gradient
        for name, each, gradient in zip(names, parameters, found, strict=True)
    }
    turn.at("forward")
    turn.backward(_mean(torch.func.functional_call(turn.model, fast, (-batch,))))


@contextmanager
def _double() -> Iterable[None]:  # type: ignore[misc]
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def _autocast() -> AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def within(context: Callable[[], AbstractContextManager[Any]], backward: bool) -> Loop:
    """Return a loop whose forward pass, and perhaps backward pass, is in a context."""

    def loop(turn: Turn, batch: torch.Tensor) -> None:
        with context():
            loss = turn.loss(batch)
            if backward:
                turn.backward(loss)
        if not backward:
            turn.backward(loss)

    return loop


def reseeding(turn: Turn, batch: torch.Tensor) -> None:
    """The seed is set between forward and backward."""
    loss = turn.loss(batch)
    torch.manual_seed(5)
    random.seed(5)
    turn.backward(loss)


LOOPS: dict[str, Loop] = {
    "plain": plain,
    "accumulating": accumulating,
    "two forwards": two_forwards,
    "evaluating": evaluating,
    "retained": retained,
    "second derivatives": second_derivatives,
    "autograd.grad": by_grad,
    "raising": raising,
    "forgetting": forgetting,
    "changing batch": changing_batch,
    "inner step": inner_step,
    "reseeding": reseeding,
    "autocast, forward": within(_autocast, False),
    "autocast, both": within(_autocast, True),
    "attention kernel, forward": within(lambda: sdpa_kernel(SDPBackend.MATH), False),
    "default dtype, forward": within(_double, False),
    "no context": within(nullcontext, True),
}


def train(
    turn: Turn, loop: Loop, batches: list[torch.Tensor], to_none: bool, adds: bool = False
) -> None:
    """Run the loop on each batch, with an optimiser, and take note of everything."""
    for number, batch in enumerate(batches):
        if not (adds and number % 2):
            turn.optimiser.zero_grad(set_to_none=to_none)
        turn.note()
        loop(turn, batch)
        turn.optimiser.step()
        turn.at("step")
        turn.note()
        turn.tell()
