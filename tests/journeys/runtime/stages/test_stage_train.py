import json
from functools import partial

import pytest
import torch

from offcert.core.errors import InputError
from offcert.questions.schedule.plan import Plan
from offcert.runtime.pairs.train import train
from offcert.runtime.profiling.profile import profile as profile_by
from offcert.runtime.stages.replay import Replay
from support.runtime.stage_problems import evict_everything, serial_schedule

profile = partial(profile_by, clock="stages")

CASES = [("resnet18", "2x3x64x64"), ("gpt-tiny", "2x16")]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_planned_training_at_least_memory_is_bitwise_plain_training(name, shape):
    # Momentum everywhere, which the second step shows; batch norm in the ResNet, dropout in the
    # GPT.
    problem = profile(name, shape, hardware="v100-pcie")
    problem = problem.with_memory(problem.trace.least_memory)
    report = train(problem, serial_schedule(problem), steps=2)
    assert len(report.steps) == 2
    for step in report.steps:
        assert step.differences == ()
        assert step.plain_loss == step.planned_loss
        assert step.deviations == ()
        assert step.peak <= problem.platform.memory
        assert step.unfreed_bytes == 0
        assert step.offloaded_bytes == step.prefetched_bytes > 0
    assert report.ok
    assert report.peak == report.predicted_peak == problem.trace.least_memory
    assert report.counted_begin == report.predicted_begin
    assert report.counted_end == report.predicted_end
    # The loss changes from step to step: something was trained.
    assert len({step.plain_loss for step in report.steps}) == 2


def test_dropout_draws_new_masks_at_every_step_and_random_state_is_left_alone():
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    before = torch.get_rng_state()
    first = train(problem, Plan(), steps=2, seed=1)
    again = train(problem, Plan(), steps=2, seed=1)
    other = train(problem, Plan(), steps=2, seed=2)
    losses = [[step.plain_loss for step in report.steps] for report in (first, again, other)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
    assert torch.equal(before, torch.get_rng_state())


def test_a_difference_in_the_planned_network_is_found_and_named(monkeypatch):
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    original = Replay.__call__

    def disturbed(self, inputs, labels=None):
        return original(self, inputs, labels) * 1.0001

    monkeypatch.setattr(Replay, "__call__", disturbed)
    report = train(problem, Plan(), steps=1)
    assert not report.ok
    assert not report.bitwise_equal
    assert "loss" in report.steps[0].differences
    assert "gradient of wte.weight" in report.steps[0].differences
    assert "parameter wte.weight" in report.steps[0].differences


def test_random_numbers_that_only_the_planned_network_draws_are_found(monkeypatch):
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    original = Replay.__call__

    def drawing(self, inputs, labels=None):
        loss = original(self, inputs, labels)
        torch.rand(1)
        return loss

    monkeypatch.setattr(Replay, "__call__", drawing)
    assert train(problem, Plan(), steps=1).steps[0].differences == ("random state",)


def test_bytes_that_nobody_planned_are_found(monkeypatch):
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    original = Replay.__call__
    hoard = []

    def hoarding(self, inputs, labels=None):
        loss = original(self, inputs, labels)
        hoard.append(torch.zeros(25))
        return loss

    monkeypatch.setattr(Replay, "__call__", hoarding)
    report = train(problem, Plan(), steps=1)
    assert report.bitwise_equal
    assert not report.ok
    ends = [d for d in report.steps[0].deviations if d.event == "end"]
    assert len(ends) == len(problem.trace) // 2
    assert {d.counted - d.predicted for d in ends} == {100}


def test_report_is_json_and_says_its_verdict():
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    seen = []
    report = train(
        problem,
        evict_everything(problem),
        steps=2,
        progress=lambda done, steps: seen.append((done, steps)),
    )
    assert seen == [(1, 2), (2, 2)]
    document = json.loads(json.dumps(report.to_dict()))
    assert document["ok"] is True
    assert document["peak"] == report.peak < problem.trace.peak_memory
    assert document["steps"][1]["differences"] == []
    assert len(document["counted_end"]) == len(document["operations"]) == len(problem.trace)


def test_bad_requests_are_refused():
    problem = profile("gpt-tiny", "2x16", hardware="t4")
    with pytest.raises(InputError, match="steps must be at least 1"):
        train(problem, Plan(), steps=0)
    bare = type(problem)(problem.name, problem.network, problem.platform)
    with pytest.raises(InputError, match="no source"):
        train(bare, Plan())
    partial = type(problem)(
        problem.name, problem.network, problem.platform, source={"model": "gpt-tiny"}
    )
    with pytest.raises(InputError, match=r"source\.input is missing"):
        train(partial, Plan())
