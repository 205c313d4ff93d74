"""A step on real tensors leaves data, versions and identities as they were."""

import copy

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.capture import capture
from offcert.runtime.capture.borrowed import Originals
from offcert.runtime.capture.step import TrainingStep
from support.runtime.captured import require_same, state_of


class Changing(nn.Module):
    """Changes its buffers, its parameters and its input in place."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layer = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(6)[1:5])
        self.history = [torch.zeros(2)]

    def forward(self, x):
        x.mul_(2)
        self.steps += 1
        with torch.no_grad():
            self.average.lerp_(x.mean(0), 0.1)
            self.layer.weight.clamp_(-0.1, 0.1)
            self.layer.bias.copy_(self.average)
            self.history[0].add_(1)
            self.norm.weight.data = self.norm.weight.data * 3
            torch.add(self.average, 1, out=self.average)
        return nn.functional.dropout(self.layer(self.norm(x)), 0.5)


def versions(model):
    return [tensor._version for tensor in [*model.parameters(), *model.buffers()]]


def identities(model):
    tensors = [*model.parameters(), *model.buffers(), *model.history]
    return [(id(tensor), tensor.data_ptr()) for tensor in tensors]


@pytest.mark.parametrize("tensors", ["real", "fake"])
@pytest.mark.parametrize("fails", [None, "forward", "backward"])
def test_a_captured_step_changes_nothing(tensors, fails):
    model = Changing()
    batch = {"x": torch.randn(3, 4), "name": "batch"}

    def run(model, batch):
        loss = model(batch.pop("x")).square().mean()
        if fails == "backward":
            loss.register_hook(lambda gradient: 1 / 0)
        if fails == "forward":
            raise ZeroDivisionError("no loss")
        return loss

    expected = copy.deepcopy((state_of(model), batch, model.history))
    before = identities(model), versions(model), batch["x"]._version
    step = TrainingStep(model, run, batch)
    if fails:
        with pytest.raises(InputError, match="ZeroDivisionError"):
            capture(step, tensors=tensors)
    else:
        found = capture(step, tensors=tensors)
        assert found.tensors == tensors
        assert found.uncounted["batch"] == 48
    require_same(expected, (state_of(model), batch, model.history))
    assert before == (identities(model), versions(model), batch["x"]._version)
    assert not torch._C._len_torch_dispatch_stack()


def test_only_what_was_there_before_is_copied():
    old = torch.zeros(4)
    with Originals() as originals:
        new = torch.ones(4)
        new.add_(1)
        old[1:2].fill_(5)
        old.add_(new)
        assert old.tolist() == [2, 7, 2, 2]
        assert len(originals._copies) == 1
    assert old.tolist() == [0] * 4
    assert new.tolist() == [2] * 4


def test_statistics_that_no_schema_tells_of():
    norm = nn.BatchNorm1d(3)
    before = copy.deepcopy(norm.state_dict())
    with Originals():
        norm(torch.randn(8, 3))
        assert not torch.equal(norm.running_mean, before["running_mean"])
    require_same(dict(before), dict(norm.state_dict()))
