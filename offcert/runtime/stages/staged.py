"""Executes a chain of stages as one training step and says when each operation begins and ends."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import fx

from offcert.core.errors import InputError
from offcert.runtime.stages.linearise import Stage, StageChain
from offcert.runtime.torch_private import queue_callback
from offcert.runtime.workloads.workload import loss_function


class Observer(Protocol):
    """An object that is told of the progress of a training step."""

    def begin(self, operation: int) -> None:
        """Operation number `operation` is about to start."""

    def end(self, operation: int) -> None:
        """Operation number `operation` has ended."""

    def hand_over(self, tensor: torch.Tensor) -> None:
        """The loss, or the gradient that it is given, belongs to the caller from now on."""


class _Clock:
    """Turns 'operation o has been reached' into begin and end events, one of each for each."""

    def __init__(self, observer: Observer, operations: int) -> None:
        self._observer = observer
        self._operations = operations
        self._now = 0
        observer.begin(0)

    def reach(self, operation: int) -> None:
        """End everything before `operation` and begin it."""
        while self._now < operation:
            self._observer.end(self._now)
            self._now += 1
            if self._now < self._operations:
                self._observer.begin(self._now)

    def finish(self) -> None:
        """End everything; a second call does nothing."""
        self.reach(self._operations)


class StagedModel:
    """A linearised module and a loss: operations ``F_0 … F_L B_L … B_0``, the loss being stage L.

    ``F_i`` ends when its stage has run, ``B_i`` when the gradient of its stage's input is complete
    and ``B_0`` when the backward pass ends. A stage whose input needs no gradient ends with the
    backward pass too; the operations after it are then empty.

    Parameters
    ----------
    chain : StageChain
        The stages.
    loss : str
        ``"cross-entropy"`` or ``"mean"``.
    """

    def __init__(self, chain: StageChain, loss: str) -> None:
        self.chain = chain
        self.loss = loss_function(loss)
        self.operations = 2 * (len(chain.stages) + 1)

    def operation_names(self) -> list[str]:
        """Return ``"F:stage"`` and ``"B:stage"`` in the order of execution."""
        stages = [stage.name for stage in self.chain.stages] + ["loss"]
        return [f"F:{name}" for name in stages] + [f"B:{name}" for name in reversed(stages)]

    def forward(self, batch: list[torch.Tensor], observer: Observer) -> torch.Tensor:
        """Run the forward operations and return the loss, whose ``backward()`` runs the others.

        Parameters
        ----------
        batch : list of tensors
            The input and, if the loss needs them, the labels. The list is emptied: nothing of the
            batch outlives its last use here, unless the caller holds it.
        observer : Observer
            Is told of every operation; ``begin`` of the first backward operation comes with the
            end of the last forward one.
        """
        labels = batch.pop() if len(batch) > 1 else None
        interpreter = fx.Interpreter(self.chain.root)
        env = interpreter.env = dict(self.chain.constants)
        env[self.chain.input] = batch.pop()
        clock = _Clock(observer, self.operations)
        for index, stage in enumerate(self.chain.stages):
            _run(stage, interpreter)
            _watch(env[stage.output], clock, self.operations - 1 - index)
            clock.reach(index + 1)
        loss = self.loss(env.pop(self.chain.stages[-1].output), labels)
        if not loss.requires_grad:
            raise InputError("no parameter of the model requires a gradient")
        env.clear()
        observer.hand_over(loss)
        loss.register_hook(lambda gradient: _start_backward(gradient, observer, clock))
        clock.reach(len(self.chain.stages) + 1)
        return loss


def _run(stage: Stage, interpreter: fx.Interpreter) -> None:
    env = interpreter.env
    for node, releases in zip(stage.nodes, stage.releases, strict=True):
        env[node] = interpreter.run_node(node)
        for dead in releases:
            env.pop(dead, None)


def _watch(value: torch.Tensor, clock: _Clock, operation: int) -> None:
    # The gradient of a stage's output is complete when its own backward operation may start.
    if value.requires_grad:
        value.register_hook(lambda _: clock.reach(operation))


def _start_backward(gradient: torch.Tensor, observer: Observer, clock: _Clock) -> None:
    # Whoever calls backward() holds the first gradient until it returns.
    observer.hand_over(gradient)
    # That the backward pass has ended shows nowhere but in the engine.
    queue_callback(clock.finish)
