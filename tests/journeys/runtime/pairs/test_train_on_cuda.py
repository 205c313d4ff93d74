"""Plain and planned training on a CUDA device, which take turns there."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.pairs.train import train
from offcert.runtime.plan.predict import predict
from offcert.runtime.profiling.profile import profile
from support.runtime.captured import evict_everything

pytestmark = pytest.mark.cuda


def layers():
    torch.manual_seed(0)
    blocks = [
        layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.Sigmoid(), nn.Dropout(0.1))
    ]
    return nn.Sequential(*blocks, nn.Linear(512, 8))


@pytest.fixture
def problem():
    # Of a model on the CPU other tensors would be foreseen: dropout's mask is of floats there.
    found = profile(layers().cuda(), "256x512", hardware="h100-sxm")
    return found.with_memory(predict(found.trace, evict_everything(found)).peak)


def test_both_models_train_there_and_are_the_same_to_the_last_bit(problem):
    model = layers()
    before = model[0].weight.detach().clone()
    report = train(problem, evict_everything(problem), model=model, steps=3, device="cuda")
    assert report.ok, report.steps
    assert report.device == "cuda"
    assert next(model.parameters()).device.type == "cpu"
    assert not torch.equal(before, model[0].weight)
    record = report.record
    assert record.device_name == torch.cuda.get_device_name()
    assert {"torch", "cuda"} <= set(record.versions)
    assert len(record.measured) == len(problem.trace)
    assert record.measured.peak <= problem.platform.memory
    assert record.measured_time > 0
    assert record.memory.allocated >= record.memory.before > 0
    assert record.errors()["late_bytes"] == record.errors()["outside_bytes"] == 0
    # Only the first step is counted, so that the others are timed as they are.
    assert [bool(step.peak) for step in report.steps] == [True, False, False]


def test_a_model_that_is_there_trains_there_and_stays_there(problem):
    model = layers().cuda()
    optimiser = torch.optim.Adam(model.parameters())

    def run(model, batch):
        return model(batch).square().mean()

    step = TrainingStep(model, run, lambda: torch.randn(256, 512, device="cuda"), optimiser)
    captured = profile(replace(step, optimiser=None), hardware="h100-sxm")
    report = train(captured, evict_everything(captured), step=step, steps=3)
    assert (report.device, report.bitwise_equal) == ("cuda", True)
    assert {each.device.type for each in model.parameters()} == {"cuda"}
    moments = [state["exp_avg"].device.type for state in optimiser.state.values()]
    assert set(moments) == {"cuda"}


@pytest.mark.parametrize(("limit", "staged"), [(64 * 2**10, False), (3 * 2**20, True)])
def test_what_has_no_room_on_the_host_goes_through_a_file(problem, tmp_path, limit, staged):
    options = {"steps": 2, "device": "cuda", "host_memory": limit, "host_spill": str(tmp_path)}
    report = train(problem, evict_everything(problem), model=layers(), **options)
    assert report.bitwise_equal
    host = report.record.host
    assert host.held <= limit
    assert host.spilled > 0
    # By way of registered memory, if there is enough of it for the largest.
    assert (host.staging > 0) is staged
    assert list(tmp_path.iterdir()) == []


def test_a_model_whose_step_fails_is_where_it_was(problem):
    model = layers().cuda()
    calls = []

    def run(model, batch):
        calls.append(batch)
        if len(calls) > 2:
            raise ValueError("no more")
        return model(batch).square().mean()

    step = TrainingStep(model, run, lambda: torch.randn(256, 512))
    with pytest.raises(InputError, match="no more"):
        train(problem, evict_everything(problem), step=step, steps=3, device="cuda")
    assert {each.device.type for each in model.parameters()} == {"cuda"}
