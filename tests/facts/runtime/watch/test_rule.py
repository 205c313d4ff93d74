"""A step of which nothing is known keeps to a limit, and is recorded as if there were none."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch import nn

from offcert.runtime.capture import Clock, build
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.capture.run import Nobody
from offcert.runtime.watch.hooks import Hooks


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True) for _ in range(3)
        )
        self.out = nn.Linear(16, 40)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(hidden)


class Following(Nobody):
    """Lets a recorder record the step that begins."""

    def begin(self, args, kwargs):
        return self.recorder.begin(args, kwargs)

    def left(self, session, output):
        self.recorder.left(session, output)


def recorded(model, limit=None, host=None):
    """Return the recorder of a step of a copy of the model, its capture, and the gradients."""
    model, steps = copy.deepcopy(model), Following()
    hooks = Hooks(model, steps)
    steps.recorder = recorder = Recorder(hooks, None, limit, host)
    hooks.attach()
    torch.manual_seed(3)
    tokens = torch.randint(40, (4, 32))
    with recorder.active():
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    hooks.detach()
    recorder.finish()
    found = build(recorder, Clock.MODULES, "real", {})
    return recorder, found, [parameter.grad for parameter in model.parameters()]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    return Words()


@pytest.fixture(scope="module")
def free(model):
    return recorded(model)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 1])
def test_within_every_limit_that_some_plan_keeps_to(model, free, share):
    _, expected, gradients = free
    least, peak = expected.trace.least_memory, expected.trace.peak_memory
    limit = int(least + share * (peak - least))
    recorder, found, ours = recorded(model, limit)
    assert recorder.tracker.most <= limit
    assert recorder.tracker.away == 0
    assert (recorder.rule.bytes_moved > 0) is (share < 1)
    assert all(map(torch.equal, ours, gradients))
    # As if nothing had left.
    assert found.trace == expected.trace
    assert found.storages == expected.storages
    assert found.network == expected.network


def test_without_room_on_the_host_less_leaves(model, free):
    _, expected, gradients = free
    recorder, found, ours = recorded(model, 0, host=20_000)
    assert recorder.rule.bytes_moved > 0
    assert recorder.tracker.most > expected.trace.least_memory
    assert found.trace == expected.trace
    assert all(map(torch.equal, ours, gradients))


def test_what_is_never_asked_for_is_forgotten(model):
    model, steps = copy.deepcopy(model), Following()
    hooks = Hooks(model, steps)
    steps.recorder = recorder = Recorder(hooks, None, 0)
    hooks.attach()
    with recorder.active():
        output = model(torch.randint(40, (4, 32)))
        assert recorder.tracker.away > 0
        del output
        gc.collect()
        assert recorder.tracker.away == 0
    hooks.detach()
