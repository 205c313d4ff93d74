"""When gradients of captured networks are complete, and what that is worth on several devices."""

from fractions import Fraction

import pytest
import torch
from torch import nn

import offcert
from offcert.certification.devices import certify_devices
from offcert.core.errors import InputError
from offcert.questions.devices.problem import Accumulation, AdditionPlace
from papers.devices_problem import devices_problem

HOST = Accumulation(AdditionPlace.HOST, Fraction(4))


class Twice(nn.Module):
    """Uses one layer at both ends."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(6, 6)
        self.middle = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, x):
        return self.shared(torch.tanh(self.frozen(torch.tanh(self.middle(self.shared(x))))))


def profiled(model, batch):
    step = offcert.TrainingStep(model, lambda model, batch: model(batch).square().mean(), batch)
    return step, offcert.profile(step, hardware="k40")


def test_gradients_come_from_the_last_layer_to_the_first():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 64, 5),
    )
    step, problem = profiled(model, torch.randn(2, 3, 8, 8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = devices_problem(step, problem, 4, HOST)
    assert [each.name for each in found.gradients] == ["6", "3", "1", "0"]
    ready = [each.ready for each in found.gradients]
    assert ready == sorted(set(ready))
    # None before the backward pass, and the first layer's with its last operation.
    assert problem.trace.operations[ready[0]].name.startswith("B:")
    assert ready[-1] == len(problem.trace) - 1
    size = sum(each.numel() * 4 for each in model.parameters())
    assert sum(each.size for each in found.gradients) == size
    # The model is what it was.
    assert all(parameter.grad is None for parameter in model.parameters())
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    certificate = certify_devices(found, time_limit=1)
    assert offcert.verify(certificate).valid
    assert certificate.gap < 0.05


def test_a_shared_gradient_is_complete_when_its_last_part_is_and_frozen_layers_have_none():
    step, problem = profiled(Twice(), torch.randn(3, 6))
    found = devices_problem(step, problem, 2, HOST)
    assert [each.name for each in found.gradients] == ["middle", "shared"]
    assert found.gradients[1].ready == len(problem.trace) - 1


def test_other_clocks_and_other_steps_are_refused():
    step, problem = profiled(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4))
    dense = offcert.profile(step, hardware="k40", clock="operators")
    with pytest.raises(InputError, match="clock modules"):
        devices_problem(step, dense, 2, HOST)
    other, _ = profiled(nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.raises(InputError, match="not the one"):
        devices_problem(other, problem, 2, HOST)
