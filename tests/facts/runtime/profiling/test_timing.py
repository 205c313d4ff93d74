"""Times of captured operations, and that timing a step leaves nothing behind."""

import time
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn

from offcert.core.chain import Chain
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.strategy import Strategy
from offcert.questions.schedule.carried import launch_times, with_host
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import hardware
from offcert.runtime.profiling.profile import profile
from offcert.runtime.profiling.timing import RepeatedStep
from offcert.runtime.simulated import RealHost, SimulatedDevice
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


def test_the_host_takes_its_time_to_hand_an_operation_over():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), Slow(), nn.Sigmoid(), nn.Linear(8, 2))
    step = mean_step(model, 4, 8)
    captured = capture(step)
    held = []

    class Held(SimulatedDevice):
        def hold(self, duration):
            held.append(duration)

    device = Held()
    timed = RepeatedStep(step, captured, device).timed(3)
    names = [operation.name for operation in captured.trace.operations]
    # The device, which is simulated, does not sleep; the host does.
    assert timed.trace.durations == captured.trace.durations
    assert len(timed.launches) == len(names)
    assert timed.launches[names.index("F:1")] > _WAIT * 10**9
    # Each run that counts begins when the host has had time enough to hand it over.
    assert len(held) == 3
    assert min(held) > _WAIT * 10**9


def test_what_runs_again_is_handed_over_again():
    chain = CheckpointChain.of(Chain([1, 2], [3, 4], [5, 5, 5], [1, 1, 1]))
    network = chain.network()
    count = len(network)
    source = {"measurement": {"launch_ns": list(range(10, 10 + count))}}
    problem = Problem("p", network, Platform(99, Fraction(1)), source=source, recompute="any")
    assert launch_times(problem) == tuple(range(10, 10 + count))
    runs = Strategy.plain(network).expand(network)
    again = Strategy((0, *runs.runs)).expand(network)
    assert launch_times(problem, again) == (10, *range(10, 10 + count))
    assert launch_times(replace(problem, source={"measurement": {"launch_ns": [1]}})) is None
    assert with_host((5, 5, 5), (1, 20, 1)) == 26
    assert with_host((5, 5, 5), (1, 1, 1)) == 15
    assert with_host((1, 1, 1), (5, 5, 5)) == 15


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


def test_a_host_that_is_behind_is_not_taken_for_the_device():
    step = mean_step(nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 2)), 4, 8)
    captured = capture(step, hardware=hardware("t4"))
    launch = 10**6
    host = RealHost(launch, 0, lambda: 0)
    device = SimulatedDevice(host=host)
    repeated = RepeatedStep(step, captured, device)
    alone = list(captured.trace.durations)
    # Every operation that launches something lasts until that has been handed over.
    behind = repeated.run().durations()
    assert max(alone) < launch <= max(behind)
    timed = repeated.timed(3)
    assert list(timed.trace.durations) == alone
    assert all(taken % launch == 0 for taken in timed.launches)
    assert sum(timed.launches) >= launch * len(alone) // 2
    assert not timed.by_kernels
    # Both forecasts and what the step takes: with the host's part it is right but for the last one.
    taken = with_host(alone, timed.launches)
    assert taken <= timed.step <= taken + max(alone)
    assert sum(alone) < timed.step // 2


def test_a_profile_behind_a_host_knows_its_launch_times():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 2))
    host = RealHost(10**6, 0, lambda: 0)
    device = SimulatedDevice(host=host)
    found = profile(mean_step(model, 4, 8), measure=True, device=device, hardware="t4")
    launches = launch_times(found)
    assert sum(launches) > found.trace.compute_time
    assert with_host(found.trace.durations, launches) >= sum(launches)
    without = SimulatedDevice()
    found = profile(mean_step(model, 4, 8), measure=True, device=without, hardware="t4")
    assert launch_times(found) is None
