"""Times of captured operations, and that timing a step leaves nothing behind."""

import time

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.profiling.timing import RepeatedStep
from support.networks import own_steps
from support.runtime.captured import mean_step, require_same, state_of

_WAIT = 0.02


class Slow(nn.Module):
    """Waits before it computes, forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(_WAIT)
        return self.layer(x)


def test_an_operation_has_the_time_of_what_happens_in_it():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), Slow(), nn.Sigmoid(), nn.Linear(8, 2))
    step = mean_step(model, 4, 8)
    captured = capture(step)
    trace = RepeatedStep(step, captured).timed(3).trace
    assert trace.tensors == captured.trace.tensors
    durations = {o.name: o.duration for o in trace.operations}
    # Nothing is computed between the sigmoid's end and the layer: the waiting is the sigmoid's.
    slow = next(name for name, duration in durations.items() if duration > _WAIT * 10**9)
    assert slow == "F:1"
    assert all(duration > 0 for duration in trace.durations)


def test_a_timed_step_leaves_no_trace():
    step = TrainingStep(
        own_steps.Branching(), lambda model, x: model(x.mul_(2)).mean(), torch.ones(16, 8)
    )
    step.model.up.weight.grad = torch.ones(64, 8)
    before = state_of(step.model)
    RepeatedStep(step, capture(step, tensors="real")).timed(2)
    require_same(before, state_of(step.model))
    assert torch.equal(step.batch, torch.ones(16, 8))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in step.model.modules())


def test_steps_that_run_the_backward_pass_themselves_are_timed_to_their_end():
    step = own_steps.backward_inside()
    captured = capture(step)
    assert captured.backward_passes == 2
    assert all(duration > 0 for duration in RepeatedStep(step, captured).timed(2).trace.durations)


def test_a_step_that_does_something_else_than_when_it_was_captured_is_refused():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Sigmoid())
    captured = capture(mean_step(model, 4, 8))

    def shorter(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model[:2](x).mean()

    def longer(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(model(x)).mean()

    def batch() -> torch.Tensor:
        return torch.randn(4, 8)

    with pytest.raises(InputError, match="called 0 times when the step was timed, 1 times when"):
        RepeatedStep(TrainingStep(model, shorter, batch), captured).timed(5)
    with pytest.raises(InputError, match="called 2 times when the step was timed, 1 times when"):
        RepeatedStep(TrainingStep(model, longer, batch), captured).timed(5)
    model[1].register_forward_hook(lambda module, args, output: output.detach())
    with pytest.raises(InputError, match=r"when it was due|never began"):
        RepeatedStep(mean_step(model, 4, 8), captured).timed(5)


def test_the_clock_of_operators_cannot_be_timed():
    step = own_steps.two_inputs()
    with pytest.raises(InputError, match="times cannot be measured with the clock operators"):
        RepeatedStep(step, capture(step, clock="operators"))
