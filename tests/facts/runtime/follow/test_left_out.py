"""Steps that do less than their plan was made for: layers dropped, loops that end early."""

from __future__ import annotations

import copy
import itertools
import warnings
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
import torch
from torch import nn

from offcert.certification.ladder import certify
from offcert.questions.schedule.problem import Recompute
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.profiling.profile import profile
from offcert.runtime.simulated.device import SimulatedDevice

WIDTH, LAYERS = 32, 5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Dropping(nn.Module):
    """Runs the layers that it is told to; each of them reads a mask that is made once."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 8)
        self.other = nn.Linear(WIDTH, WIDTH)
        self.runs = range(LAYERS)
        self.swaps = False

    def forward(self, x):
        x = self.first(x)
        mask = (x > -1).float()
        for number in self.runs:
            x = self.layers[number](x * mask)
        if self.swaps:
            x = self.other(x).sin()
        return self.last(self.norm(x))


def loss_of(model, batch):
    return model(batch).square().mean()


@cache
def certificate(recompute, share):
    problem = profile(
        TrainingStep(Dropping(), loss_of, torch.randn(64, WIDTH)),
        hardware="v100-pcie",
        recompute="none",
    )
    problem = replace(problem.with_memory(problem.memory_at(share)), recompute=recompute)
    return certify(problem, time_limit=2, workers=1)


def trained(planned, plain, runs):
    """Make the same step in two models, and compare all gradients."""
    torch.manual_seed(len(runs))
    batch, state = torch.randn(64, WIDTH), torch.get_rng_state()
    for model in (plain, planned):
        torch.set_rng_state(state)
        model.zero_grad()
        model.runs = runs
        loss_of(model, batch).backward()
    for one, other in zip(plain.parameters(), planned.parameters(), strict=True):
        assert (one.grad is None) is (other.grad is None)
        assert one.grad is None or torch.equal(one.grad, other.grad)


# One without each layer, then loops that end early, and one in which nothing is left.
WITHOUT_ONE = [[n for n in range(LAYERS) if n != left] for left in range(LAYERS)]
ENDING = [range(3), range(1), range(0)]


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.ANY])
@pytest.mark.parametrize("streams", [False, True])
def test_a_step_that_does_less_is_planned_within_the_limit(recompute, streams):
    torch.manual_seed(1)
    planned = Dropping()
    plain = copy.deepcopy(planned)
    found = certificate(recompute, Fraction(1, 2))
    platform = found.problem.platform
    device = SimulatedDevice(platform, strict=True) if streams else None
    steps = [range(LAYERS), *WITHOUT_ONE, *ENDING, range(LAYERS)]
    with (
        warnings.catch_warnings(action="error"),
        follow(planned, found, options=FollowOptions(count=True, device=device)) as training,
    ):
        for runs in steps:
            trained(planned, plain, runs)
            assert training.report.planned
            assert training.report.peak <= platform.memory
    assert training.steps == {"planned": len(steps)}
    assert device is None or device.races == []


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 4)])
def test_what_is_foreseen_without_counting_is_not_less_than_what_is_counted(share):
    torch.manual_seed(1)
    found = certificate(Recompute.NONE, share)
    patterns = [
        list(each)
        for size in range(LAYERS + 1)
        for each in itertools.combinations(range(LAYERS), size)
    ]
    told = {}
    for count in (False, True):
        planned = Dropping()
        plain = copy.deepcopy(planned)
        with (
            warnings.catch_warnings(action="ignore"),
            follow(planned, found, options=FollowOptions(count=count)) as made,
        ):
            for number, runs in enumerate(patterns):
                trained(planned, plain, runs)
                told[count, number] = made.report.planned
    # The first step that leaves something out tells that all operations have to be heard of.
    assert not told[False, 0]
    foreseen = [number for number in range(len(patterns)) if told[False, number]]
    assert all(told[True, number] for number in foreseen)
    assert len(foreseen) > len(patterns) / 4


def test_a_step_that_does_something_else_instead_is_not():
    torch.manual_seed(1)
    planned = Dropping()
    plain = copy.deepcopy(planned)
    with follow(
        planned, certificate(Recompute.NONE, Fraction(1, 2)), options=FollowOptions(count=True)
    ) as training:
        trained(planned, plain, range(LAYERS))
        plain.swaps = planned.swaps = True
        trained(planned, plain, range(2))
        with pytest.warns(OffloadWarning, match="never began"):
            training.follower.close_run("the test looks")
    assert training.steps == {"planned": 1, "deviating": 1}
