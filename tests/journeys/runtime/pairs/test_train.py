"""Plain and planned training of captured steps, side by side."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError, PlanError
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import HARDWARE
from offcert.runtime.pairs.train import train
from offcert.runtime.profiling.profile import profile
from offcert.runtime.streaming.synchronous import SynchronousMover
from offcert_lab.stages.problem import stage_problem
from support.networks import own_steps
from support.runtime.captured import evict_everything

CASES = [("resnet18", "2x3x64x64"), ("gpt-tiny", "2x16")]


@pytest.mark.parametrize("clock", ["modules", "operators"])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_planned_training_at_least_memory_is_bitwise_plain_training(name, shape, clock):
    # Momentum everywhere, which the second step shows; batch norm in the ResNet, dropout in the
    # GPT.
    problem = profile(name, shape, hardware="v100-pcie", clock=clock)
    problem = problem.with_memory(problem.trace.least_memory)
    report = train(problem, evict_everything(problem), steps=2)
    assert len(report.steps) == 2
    for step in report.steps:
        assert step.differences == ()
        assert step.plain_loss == step.planned_loss
        assert step.deviations == ()
        assert step.deviation is None
        assert step.peak <= problem.platform.memory
        assert step.unfreed_bytes == step.unforeseen_bytes == 0
        assert step.offloaded_bytes > 0
    assert report.ok
    assert report.peak == report.predicted_peak == problem.trace.least_memory
    assert report.counted_begin == report.predicted_begin
    assert report.counted_end[:-1] == report.predicted_end[:-1]
    # The loss changes from step to step: something was trained.
    assert len({step.plain_loss for step in report.steps}) == 2


@pytest.mark.parametrize(
    "options", [{}, {"optimiser": "Adam"}, {"width": 64, "optimiser": "AdamW"}], ids=str
)
def test_steps_with_inputs_losses_and_optimisers_of_their_own(options):
    problem = profile("support.networks.own_steps:two_inputs", hardware="t4", options=options)
    plan = evict_everything(problem)
    report = train(problem, plan, steps=3)
    assert report.ok
    assert all(step.offloaded_bytes > 0 for step in report.steps)
    assert len({step.plain_loss for step in report.steps}) == 3


def test_the_optimiser_of_a_step_trains_it():
    def losses(**options):
        problem = profile("support.networks.own_steps:two_inputs", hardware="t4", options=options)
        report = train(problem, evict_everything(problem), steps=2)
        return [step.plain_loss for step in report.steps]

    (first, sgd), (same, adam) = losses(), losses(optimiser="Adam")
    assert first == same
    assert sgd != adam


def test_a_step_that_runs_the_backward_pass_itself_has_no_loss_to_compare():
    step = own_steps.backward_inside()
    problem = profile(step, hardware="t4")
    report = train(problem, evict_everything(problem), step=step, steps=2)
    assert report.ok
    assert report.steps[0].plain_loss is None
    assert report.steps[0].offloaded_bytes > 0
    assert (
        json.loads(json.dumps(report.to_dict(), allow_nan=False))["steps"][0]["plain_loss"] is None
    )


def test_control_flow_on_values_trains_as_it_was_captured():
    problem = profile("support.networks.own_steps:branching", "16x8", hardware="t4")
    assert problem.source["capture"]["tensors"] == "real"
    report = train(problem, evict_everything(problem), steps=2)
    assert report.ok
    assert report.steps[1].offloaded_bytes > 0


def test_every_generator_that_a_step_draws_from_is_seeded_compared_and_put_back():
    problem = profile("support.networks.own_steps:layer_drop", hardware="t4")
    plan = evict_everything(problem)
    torch_state, random_state = torch.get_rng_state(), own_steps.random.getstate()
    runs = [train(problem, plan, steps=2, seed=seed) for seed in (1, 1, 2)]
    assert all(report.ok for report in runs)
    losses = [[step.plain_loss for step in report.steps] for report in runs]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
    assert torch.equal(torch_state, torch.get_rng_state())
    assert own_steps.random.getstate() == random_state


def test_without_counting_the_steps_are_compared_all_the_same():
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    report = train(problem, evict_everything(problem), steps=2, count=False)
    assert report.ok
    assert not report.counted
    assert report.counted_begin == report.counted_end == report.counted_peaks == ()
    assert report.peak == 0
    assert report.steps[1].offloaded_bytes > 0
    assert report.to_dict()["counted"] is False


def test_a_model_or_a_step_of_the_callers_is_trained_the_plain_way():
    model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 3))
    problem = profile(model, "4x8", hardware="t4")
    before = model[0].weight.clone()
    assert train(problem, evict_everything(problem), model=model, steps=1).ok
    assert not torch.equal(before, model[0].weight)
    step = own_steps.two_inputs()
    problem = profile(step, hardware="t4")
    before = step.model.first.weight.clone()
    assert train(problem, evict_everything(problem), step=step, steps=1).ok
    assert not torch.equal(before, step.model.first.weight)


def _broken(monkeypatch, break_it):
    """Let something happen to the planned model's saved storages when they come back."""

    class Breaks(SynchronousMover):
        def _fetch(self, step, entry):
            super()._fetch(step, entry)
            break_it(entry)

    monkeypatch.setattr("offcert.runtime.streaming.mover_makers.SynchronousMover", Breaks)


def test_a_wrong_byte_that_comes_back_is_found_and_named(monkeypatch):
    problem = profile("gpt-tiny", "2x16", hardware="t4")

    def flip(entry):
        torch.empty(0, dtype=torch.uint8).set_(entry.device_storage())[-2:] += 1

    _broken(monkeypatch, flip)
    report = train(problem, evict_everything(problem), steps=1)
    assert not report.ok
    assert not report.bitwise_equal
    assert any(name.startswith("gradient of ") for name in report.steps[0].differences)
    assert any(name.startswith("parameter ") for name in report.steps[0].differences)


def test_bytes_that_nobody_planned_are_found(monkeypatch):
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    hoard = []

    class Hoards(SynchronousMover):
        def _return(self, step, tensor, operation):
            super()._return(step, tensor, operation)
            # Movers say what they allocate: counters do not see their operators.
            hoard.append(torch.zeros(25))
            step.counter.adopt(hoard[-1])

    monkeypatch.setattr("offcert.runtime.streaming.mover_makers.SynchronousMover", Hoards)
    report = train(problem, evict_everything(problem), steps=1)
    assert report.bitwise_equal
    assert not report.ok
    assert {d.event for d in report.steps[0].deviations} == {"begin", "end", "peak"}
    assert {(d.counted - d.predicted) % 100 for d in report.steps[0].deviations} == {0}


def test_random_numbers_that_only_the_planned_step_draws_are_found(monkeypatch):
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    _broken(monkeypatch, lambda entry: own_steps.random.random())
    assert train(problem, evict_everything(problem), steps=1).steps[0].differences == (
        "random state",
    )


def test_a_step_that_is_not_the_captured_one_is_no_success():
    step = own_steps.two_inputs(width=16)
    problem = profile(step, hardware="t4")
    step.model.drop.p = 0.0
    report = train(problem, evict_everything(problem), step=step, steps=1, count=False)
    assert report.bitwise_equal
    assert not report.ok
    assert report.steps[0].deviation is not None


def test_a_step_that_does_not_call_the_model_it_is_given_is_no_success():
    problem = profile("support.networks.own_steps:forgets_its_model", hardware="t4")
    report = train(problem, Plan(), steps=1)
    assert not report.ok
    assert report.steps[0].deviation == "step.run has not called the model that it was given"


def test_bad_requests_are_refused():
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    step = own_steps.two_inputs()
    of_step = profile(step, hardware="t4")
    refuse = partial(pytest.raises, InputError)
    with refuse(match="steps must be at least 1"):
        train(problem, Plan(), steps=0)
    with refuse(match="only one of model and step"):
        train(problem, Plan(), model=step.model, step=step)
    with refuse(match="the problem is one of a TrainingStep: pass it as step"):
        train(of_step, Plan())
    with refuse(match="the problem is one of a TrainingStep: pass it as step"):
        train(of_step, Plan(), model=step.model)
    with refuse(match="is a problem of stages"):
        train(stage_problem("gpt-tiny", "2x16", HARDWARE["t4"]), Plan(), step=step)
    source = {name: value for name, value in problem.source.items() if name != "capture"}
    bare = type(problem)(problem.name, problem.network, problem.platform, source=source)
    with refuse(match="which training cannot follow"):
        train(bare, Plan())
    with pytest.raises(PlanError, match="more than the limit"):
        train(problem.with_memory(1), Plan())

    def fail(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("the loss\nis gone")

    broken = TrainingStep(step.model, fail, step.batch)
    with refuse(match="a training step of TwoInputs failed: RuntimeError: the loss$"):
        train(of_step, Plan(), step=broken)
