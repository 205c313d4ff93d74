"""Networks of the zoo under a plan: bitwise plain training, and live bytes as predicted."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from offcert.certification.methods import solve
from offcert.runtime import zoo
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from support.networks.shallow_networks import shallow
from support.runtime.captured import compare, evict_everything, problem_of_step, seeded

# One or two of every family; the others are the same code, deeper. AlexNet is to stand for VGG,
# and narrow, as its linear layers would take longer than all others together.
SHAPES = {
    "resnet18": (2, 3, 64, 64),
    "resnet50": (2, 3, 64, 64),
    "densenet121": (2, 3, 64, 64),
    "inception_v3": (2, 3, 96, 96),
    "alexnet": (2, 3, 64, 64),
    "gpt-tiny": (2, 16),
}


def training_step(name):
    with seeded(0), shallow():
        model = zoo.build(name)
    if name == "alexnet":
        with seeded(0):
            for index, sizes in {1: (256 * 6 * 6, 64), 4: (64, 48), 6: (48, 1000)}.items():
                model.classifier[index] = nn.Linear(*sizes)
    shape = SHAPES[name]
    tokens = len(shape) == 2
    criterion = nn.CrossEntropyLoss()

    def batch():
        if tokens:
            return torch.randint(128, shape), torch.randint(128, shape)
        return torch.randn(shape), torch.randint(1000, shape[:1])

    def run(model, batch):
        inputs, labels = batch
        outputs = model(inputs)
        return criterion(outputs.flatten(0, -2), labels.flatten())

    return TrainingStep(model, run, batch)


@pytest.mark.parametrize("name", SHAPES)
def test_everything_evicted(name):
    compare(training_step(name), steps=1).require_followed()


@pytest.mark.parametrize("name", ["resnet18", "gpt-tiny"])
@pytest.mark.parametrize("clock", ["modules", "operators"])
@pytest.mark.parametrize("fraction", ["0", "1/2"])
def test_certified_plans(name, clock, fraction):
    step = training_step(name)
    problem = problem_of_step(step, clock)
    problem = problem.with_memory(problem.memory_at(Fraction(fraction)))
    certificate = solve(problem, "sequential", time_limit=5)
    assert certificate.result.schedule is not None
    with follow(step.model, certificate, options=FollowOptions(count=True)) as made:
        for _ in range(2):
            step.run(step.model, step.make_batch()).backward()
            report = made.report
            assert report.planned, report.deviation
            assert report.offloaded_bytes > 0
            assert report.follows_prediction
            assert report.at_begin == report.prediction.at_begin
            assert report.peak <= report.limit == problem.platform.memory


def test_everything_evicted_at_the_clock_of_operators():
    outcome = compare(training_step("gpt-tiny"), steps=2, clock="operators").require_followed()
    finer = outcome.problem.trace
    coarser = problem_of_step(training_step("gpt-tiny")).trace
    assert len(finer) > len(coarser)


def test_a_copy_follows_the_plan_of_the_original():
    step = training_step("resnet18")
    problem = problem_of_step(step)
    other = training_step("resnet18")
    with follow(other.model, evict_everything(problem), problem, FollowOptions(count=True)) as made:
        other.run(other.model, other.make_batch()).backward()
    assert made.report.follows_prediction
    assert made.steps == {"planned": 1}
