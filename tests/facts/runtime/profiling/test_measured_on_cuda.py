"""Profiles measured on a CUDA device."""

import copy

import pytest
import torch
from torch import nn

from offcert.core.platform import Kind
from offcert.questions.schedule.carried import launch_times, with_host
from offcert.questions.schedule.training_record import AllocatorPeaks
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import follow
from offcert.runtime.profiling.profile import profile
from support.runtime.captured import evict_everything

pytestmark = pytest.mark.cuda


def test_a_problem_says_what_the_device_is_and_does():
    problem = profile("resnet18", "16x3x64x64", measure=True)
    found = problem.source["measurement"]
    assert problem.source["capture"]["device"] == "cuda"
    assert problem.source["capture"]["tensors"] == "real"
    assert found["device"]["device"] == torch.cuda.get_device_name()
    assert all(operation.duration > 0 for operation in problem.plain().trace.operations)
    assert {"alone", "together", "computing"} <= found["link"].keys()
    assert all(rate > 10**8 for rates in ("alone", "computing") for rate in found["link"][rates])
    assert all(problem.platform.rate(kind) > 0 for kind in Kind)


@pytest.mark.parametrize(
    ("model", "shape"),
    [("resnet18", "64x3x128x128"), ("densenet121", "8x3x128x128"), ("gpt-tiny", "8x32")],
)
def test_what_is_counted_and_what_is_not_is_all_that_is_allocated(model, shape):
    problem = profile(model, shape, measure=True)
    told = problem.source["measurement"]["allocator"]
    uncounted = sum(problem.source["uncounted"].values())
    planned = problem.plain().trace.peak_memory + uncounted
    found = AllocatorPeaks(0, told["peak_allocated"], told["peak_reserved"])
    # Also what the allocator rounds up; gradients are counted from the beginning.
    assert found.peak_error(planned) <= 0.005, found.beside(planned, planned)
    assert found.fragmentation < 1


class Recurrent(nn.Module):
    """Saves what cuDNN reserves, of a size that only cuDNN knows."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.lstm = nn.LSTM(64, 64, num_layers=2, dropout=0.2, batch_first=True)
        self.last = nn.Linear(64, 8)

    def forward(self, x):
        return self.last(torch.relu(self.lstm(torch.relu(self.first(x)))[0]))


@pytest.mark.parametrize("model", [Recurrent(), nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.3))])
def test_everything_that_a_step_saves_was_foreseen_by_the_problem(model):
    model = copy.deepcopy(model).to("cuda")
    batch = torch.randn(4, 16, 32, device="cuda")
    step = TrainingStep(model, lambda model, x: model(x).square().mean(), batch)
    problem = profile(step, measure=True)
    # Of a plan that moves nothing, nobody looks at what is saved.
    with follow(model, evict_everything(problem), problem=problem) as made:
        step.execute(batch)
    assert made.report.planned, made.report.deviation
    assert made.report.unforeseen == ()


def test_measuring_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 8)).to("cuda")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = torch.randn(32, 64, device="cuda")
    generator = torch.cuda.get_rng_state()
    profile(TrainingStep(model, lambda model, x: model(x).mean(), batch), measure=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.cuda.get_rng_state(), generator)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


# Large enough that the host is ahead of the device.
LARGE = (
    ("resnet50", "64x3x224x224", {}),
    ("vgg16", "32x3x224x224", {}),
    ("densenet121", "64x3x224x224", {}),
    ("gpt", "8x512", {"layers": 12, "width": 768, "heads": 12, "vocabulary": 16_384}),
)


@pytest.mark.parametrize(("model", "shape", "options"), LARGE)
def test_durations_add_up_to_the_step(model, shape, options):
    problem = profile(model, shape, options=options, measure=True)
    found = problem.source["measurement"]
    durations = problem.plain().trace.durations
    # With what the host adds to it, should it be behind after all.
    taken = with_host(durations, launch_times(problem))
    assert abs(taken - found["step_ns"]) <= 0.02 * found["step_ns"]
