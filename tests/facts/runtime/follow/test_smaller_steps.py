"""Steps that are smaller than the captured one, under its plan."""

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
from offcert.core.platform import Platform
from offcert.questions.schedule.problem import Recompute
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.profiling.profile import profile
from offcert.runtime.simulated.device import SimulatedDevice
from offcert.runtime.watch.signature import covers, volume
from support.runtime.counted_search import counted_search

WORDS, WIDTH = 40, 16


class Diffusion(nn.Module):
    """A transformer that is called with tokens and, like a UNet, with a whole number."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, batch_first=True) for _ in range(layers)
        )
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor, timestep: int) -> torch.Tensor:
        hidden = self.embedding(tokens) + timestep / 1000
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(hidden)


def loss_of(model, batch):
    tokens, timestep = batch
    return nn.functional.cross_entropy(model(tokens, timestep).flatten(0, 1), tokens.flatten())


def squared(model, batch):
    return model(*batch).square().mean()


def batch_of(rows, length, timestep=500):
    return torch.randint(WORDS, (rows, length)), timestep


def problem_of(model, recompute, share=Fraction(2, 5), loss=loss_of, batch=None):
    step = TrainingStep(model, loss, batch_of(4, 48) if batch is None else batch)
    problem = profile(step, hardware="v100-pcie", recompute="none")
    return replace(problem.with_memory(problem.memory_at(share)), recompute=recompute)


@cache
def certificate_for(kind, recompute):
    return certify(problem_of(kind(), recompute), time_limit=2, workers=1)


def together(plain, planned, batch, loss=loss_of):
    """Make the same step in two models and compare all gradients."""
    state = torch.get_rng_state()
    for model in (plain, planned):
        torch.set_rng_state(state)
        model.zero_grad()
        loss(model, batch).backward()
    pairs = zip(plain.parameters(), planned.parameters(), strict=True)
    for one, other in pairs:
        assert (one.grad is None) is (other.grad is None)
        assert one.grad is None or torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.ANY])
@pytest.mark.parametrize("streams", [False, True])
def test_any_length_and_any_number_within_the_limit(streams, recompute):
    torch.manual_seed(1)
    planned = Diffusion()
    plain = copy.deepcopy(planned)
    certificate = certificate_for(Diffusion, recompute)
    platform = certificate.problem.platform
    device = SimulatedDevice(platform, strict=True) if streams else None
    sizes = [(4, 48), (1, 7), (3, 48), (4, 1), (1, 48), *itertools.product((2, 3), (5, 31))]
    moved = {}
    with (
        warnings.catch_warnings(action="error"),
        follow(planned, certificate, options=FollowOptions(count=True, device=device)) as training,
    ):
        for number, size in enumerate(sizes):
            together(plain, planned, batch_of(*size, timestep=7 * number))
            report = training.report
            assert report.planned
            assert report.peak <= platform.memory
            assert not report.unforeseen
            moved[size] = report.offloaded_bytes
    assert training.steps == {"planned": len(sizes)}
    assert 0 < moved[1, 7] < moved[3, 48] < moved[4, 48]
    assert device is None or device.races == []


class Short(Diffusion):
    """Takes a shorter way where there are few tokens."""

    def forward(self, tokens, timestep):
        if tokens.shape[1] >= 10:
            return super().forward(tokens, timestep)
        return self.out(self.embedding(tokens).sin())


def test_a_step_that_only_looks_smaller_is_left_alone_after_two():
    torch.manual_seed(1)
    planned = Short()
    plain = copy.deepcopy(planned)
    with (
        warnings.catch_warnings(record=True) as told,
        follow(planned, certificate_for(Short, Recompute.NONE)) as training,
    ):
        warnings.simplefilter("always")
        for length in (48, 5, 5, 5, 20, 5, 48):
            together(plain, planned, batch_of(4, length))
    assert training.steps == {"planned": 3, "deviating": 2, "unplanned": 2}
    assert any("never began" in str(each.message) for each in told)


class Impure(nn.Module):
    """Does something else each time, but only with few rows."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.calls = iter(range(1000))

    def forward(self, hidden):
        calls = next(self.calls) if len(hidden) < 3 else 0
        return (self.linear(hidden) * (1 + calls)).tanh()


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[Impure() for _ in range(5)])

    def forward(self, hidden, number):
        return self.layers(hidden) * number


def test_what_runs_again_is_rehearsed_anew_with_sizes_that_are_new():
    torch.manual_seed(1)
    planned = Stack()
    plain = copy.deepcopy(planned)
    large = torch.randn(8, WIDTH), 2
    problem = problem_of(planned, Recompute.ANY, Fraction(0), squared, large)
    # A link so slow that everything runs again.
    slow = replace(problem, platform=Platform(problem.platform.memory, Fraction(1, 1000)))
    certificate = counted_search(slow)
    assert certificate.result.execution.repeated > 0
    with warnings.catch_warnings(record=True), follow(planned, certificate) as training:
        warnings.simplefilter("always")
        for rows in (8, 8, 2, 2, 8):
            together(plain, planned, (torch.randn(rows, WIDTH), 3), squared)
            assert training.report.planned or rows == 2 or training.refused
    assert training.refused


TENSOR = ["float32", [4, 8], "cpu", False]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([TENSOR, "3", "None"], True),
        ([TENSOR, "-12", "None"], True),
        ([["float32", [4, 1], "cpu", False], "3", "None"], True),
        ([["float32", [5, 8], "cpu", False], "3", "None"], False),
        ([["float32", [0, 8], "cpu", False], "3", "None"], False),
        ([["float32", [4], "cpu", False], "3", "None"], False),
        ([["float64", [4, 8], "cpu", False], "3", "None"], False),
        ([["float32", [4, 8], "cuda", False], "3", "None"], False),
        ([["float32", [4, 8], "cpu", True], "3", "None"], False),
        ([TENSOR, "'3'", "None"], False),
        ([TENSOR, "True", "None"], False),
        ([TENSOR, "3", "float"], False),
        ([TENSOR, "3"], False),
    ],
)
def test_what_covers_a_call(found, expected):
    rest = [[], [0, 3], [0, 2]]
    captured = [[TENSOR, "3", "None"], *rest]
    assert covers(captured, [found, *rest]) is expected
    assert covers(captured, [found, [], [0, 3], [1, 1]]) is False
    assert volume(captured) == 32
