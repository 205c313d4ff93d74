"""When the gradients of a captured step are complete: its problem on several devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.questions.devices.problem import Accumulation, DevicesProblem, Gradient
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.capture.borrowed import Originals, borrowed, random_state_kept
from offcert.runtime.capture.capture import Capture, Clock, read_capture
from offcert.runtime.capture.run import Nobody, borrowing
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.watch.events import Event, Session
from offcert.runtime.watch.hooks import Hooks, unwrap


def devices_problem(
    step: TrainingStep, problem: Problem, devices: int, accumulation: Accumulation
) -> DevicesProblem:
    """Return the problem of a captured step on several devices, each with a batch of its own.

    The step, from which the problem was profiled with the clock of modules, is run once on its real
    tensors, to see in which operation each gradient becomes complete; everything that it changes is
    put back. Weights and biases of a module are one gradient. Its weights are not used after that:
    what reads them in the backward pass is what their gradient comes from.
    """
    capture = read_capture(problem.source, problem.trace)
    if capture.clock is not Clock.MODULES:
        raise InputError(f"gradients are timed by the clock modules, not {capture.clock}")
    ready = _completions(step, capture)
    gradients = []
    for path, module in unwrap(step.model).named_modules():
        own = [each for each in module.parameters(recurse=False) if id(each) in ready]
        if own:
            last = max(ready.pop(id(each)) for each in own)
            size = sum(each.numel() * each.element_size() for each in own)
            gradients.append(Gradient(path or "model", size, last, last))
    gradients.sort(key=lambda gradient: gradient.ready)
    name = f"{problem.name} on {devices} devices"
    # Everything runs once there. What devices that share a link slow down of each other is not
    # known: as fast as it can be.
    alone = problem.platform.alone
    step_problem = replace(problem, platform=alone, recompute=Recompute.NONE)
    return DevicesProblem(name, step_problem, devices, gradients, accumulation)


def _completions(step: TrainingStep, capture: Capture) -> dict[int, int]:
    """Return the operation in which the gradient of each parameter becomes complete, by its id."""
    hooks = Hooks(unwrap(step.model), Nobody())
    clock = _Clock(hooks, capture)
    hooks.steps = clock
    handles = [
        each.register_post_accumulate_grad_hook(clock.complete)
        for each in hooks.root.parameters()
        if each.requires_grad
    ]
    try:
        with random_state_kept(), borrowed(*borrowing(step)), Originals():
            hooks.attach({event.path for event in capture.ticks}.__contains__)
            step.execute(step.make_batch())
    finally:
        hooks.detach()
        for handle in handles:
            handle.remove()
    if clock.running != len(capture.ticks) - 1:
        raise InputError("the step is not the one that the problem was captured from")
    return clock.ready


class _Clock(Session):
    """Knows which operation of a capture is running."""

    def __init__(self, hooks: Hooks, capture: Capture) -> None:
        super().__init__(hooks)
        self.running = -1
        self.ready: dict[int, int] = {}
        self._numbers = {event: number for number, event in enumerate(capture.ticks)}

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Go on with the step, which may call the model several times."""
        return self if torch.is_grad_enabled() else None

    def left(self, session: Session, output: Any) -> None:
        """Nothing has to be done."""

    def wants(self, event: Event) -> bool:
        """Whether the event is a tick; the model's own tell that a backward pass runs."""
        return event in self._numbers or not event.path

    def tick(self, event: Event) -> None:
        """Take note of an operation that begins."""
        self.running = self._numbers.get(event, self.running)

    def complete(self, parameter: torch.Tensor) -> None:
        """Take note of a gradient; what comes last counts."""
        self.ready[id(parameter)] = max(self.running, 0)
