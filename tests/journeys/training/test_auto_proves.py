"""Plans made on the way leave out what does not make the same again, and say what that costs."""

from __future__ import annotations

import copy
import itertools
import random
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from offcert.core.carried.ranges import Line, Range, Ranges, SequentialCall
from offcert.runtime.hardware import HARDWARE
from offcert.runtime.watch.guard import OffloadWarning
from offcert.training import offload, search
from offcert.training.planner import opaque_modules
from support.runtime.counted_search import counted_search

NOISE = random.SystemRandom()


@pytest.fixture(autouse=True)
def _slow_link(monkeypatch):
    # One tensor that moves takes ten times as long as all of the computing, so what may run again
    # does; and no search is ended by a clock, so which plan is found says nothing of a machine.
    slow = replace(HARDWARE["v100-pcie"], name="slow-link", link_bandwidth=10**7)
    monkeypatch.setitem(HARDWARE, slow.name, slow)
    monkeypatch.setattr(search, "certify", counted_search)


class Ticks(nn.Module):
    """Counts with something that cannot be put back, or only from its second call on."""

    def __init__(self, counter=None):
        super().__init__()
        self.linear, self.counter, self.calls = nn.Linear(64, 64), counter, 0

    def forward(self, x):
        self.calls += 1
        y = torch.tanh(self.linear(x))
        if self.counter is not None:
            y = y * (1 + next(self.counter) % 7 / 8)
        return torch.tanh(y) * (1 + self.calls % 5 / 8)


def model_of(*counters):
    torch.manual_seed(0)
    layers = [layer for each in counters for layer in (nn.Linear(64, 64), nn.Tanh(), Ticks(each))]
    return nn.Sequential(*layers, nn.Linear(64, 2))


def trained(models, steps, **options):
    """Train models side by side, the last under plans made on the way; they must stay the same."""
    torch.manual_seed(1)
    given = {
        "background": False,
        "hardware": "slow-link",
        "memory": "20%",
    } | options
    training = offload(models[-1], "auto", **given)
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in models]
    with training, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(steps):
            batch = torch.randn(32, 64)
            for model, optimiser in zip(models, optimisers, strict=True):
                optimiser.zero_grad()
                model(batch).square().mean().backward()
            pairs = zip(*(each.parameters() for each in models), strict=True)
            assert all(torch.equal(one.grad, other.grad) for one, other in pairs)
            for optimiser in optimisers:
                optimiser.step()
    calls = [[m.calls for m in model if isinstance(m, Ticks)] for model in models]
    assert calls[0] == calls[1]
    return training, [str(each.message) for each in told if each.category is OffloadWarning]


def test_what_cannot_be_put_back_is_left_out_of_the_next_plan():
    # Its iterator shows only once it has been seen to change.
    models = [model_of(None, itertools.count(), None) for _ in range(2)]
    training, told = trained(models, 6)
    assert training.report.planned
    # One step is captured, modules are wrapped in another; then there are two rehearsals: of a
    # change in the first of them it is not known whether it is one like that of a cache.
    assert training.steps["deviating"] == 2
    assert training.steps["planned"] >= 2
    assert set(training.refused.values()) == {"5.counter changes, and cannot be put back"}
    assert dict(training.report.refused) == training.refused
    again = training.step_plans[0].segments
    assert again, "the others run again"
    assert not any("5" in (s.path, *(s.children or ())) for s in again.nested())
    assert any("does not run again any more" in each for each in told)
    (said,) = [each for each in told if "of computing alone" in each]
    assert said.startswith("5 cannot run again (5.counter changes, and cannot be put back): a step")


def test_what_may_change_unseen_is_left_out_of_the_first_plan():
    models = [model_of(None, (each for each in itertools.count()), None) for _ in range(2)]
    assert list(opaque_modules(models[0])) == ["5"]
    training, told = trained(models, 5)
    assert training.report.planned
    assert training.refused == {}
    assert training.steps["deviating"] == 0
    assert training.step_plans[0].segments
    (said,) = [each for each in told if "of computing alone" in each]
    assert said.startswith("5 cannot run again (5.counter, a generator may change unseen)")


def test_where_nothing_can_be_proved_plans_only_move():
    models = [model_of(*((x for x in itertools.count()) for _ in range(3))) for _ in range(2)]
    for model in models:
        for index, layer in enumerate(model):
            if not isinstance(layer, Ticks):
                layer.hidden = (x for x in range(index))
    training, told = trained(models, 5, memory="60%")
    assert training.report.planned
    assert not training.step_plans[0].segments
    assert not training.step_plans[0].moves_nothing
    assert any("and 9 other modules cannot run again" in each for each in told)


def test_noise_is_found_in_the_rehearsal():
    class Noisy(Ticks):
        def forward(self, x):
            return super().forward(x) * 1.0 + 0.0 * NOISE.random()

    # What it draws changes nothing: so it makes the same again, and may.
    models = [nn.Sequential(nn.Linear(64, 64), Noisy(), nn.Linear(64, 2)) for _ in range(1)]
    models.append(copy.deepcopy(models[0]))
    training, _ = trained(models, 5)
    assert training.report.planned


def test_ranges_without_some_modules():
    ranges = Ranges(
        (Range(0, 9, "a", 0), Range(0, 3, "a.b", 0), Range(4, 9, "a.c", 0), Range(10, 12, "d", 0)),
        (SequentialCall("", 0, ("a", "d", "e", "f"), (0, 10, 13, 14), (9, 12, 13, 14)),),
        (Line((("d", 0), ("e", 0), ("f", 0)), (10, 13, 14), (12, 13, 14)),),
    )
    left = ranges.without(["a.b", "e"])
    assert left.calls == (Range(4, 9, "a.c", 0), Range(10, 12, "d", 0))
    assert left.rows == (
        SequentialCall("", 0, ("d",), (10,), (12,)),
        SequentialCall("", 0, ("f",), (14,), (14,)),
    )
    assert left.lines == (Line((("d", 0),), (10,), (12,)), Line((("f", 0),), (14,), (14,)))
    assert [(each.first, each.last) for each in left] == [(4, 9), (10, 12), (14, 14)]
    assert ranges.without([]) == ranges
