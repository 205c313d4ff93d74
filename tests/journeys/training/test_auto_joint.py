"""Plans made on the way in which modules run again: bitwise plain training within the budget."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from offcert.certification.ladder import certify
from offcert.core.errors import InputError
from offcert.runtime import zoo
from offcert.runtime.capture import Capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import Offload
from offcert.runtime.hardware import HARDWARE
from offcert.runtime.segments.attach import Segments
from offcert.runtime.watch.guard import OffloadWarning
from offcert.training import host_room, offload, search
from offcert.verification.document import verify

# A search ends with any plan within twice the optimum: how fast the machine is says nothing.
FAST = {"hardware": "slow-link", "time_limit": 120, "count": True, "background": False}


@pytest.fixture(autouse=True)
def _slow_link(monkeypatch):
    # So slow beside the computing that most is computed again.
    slow = replace(HARDWARE["v100-pcie"], name="slow-link", link_bandwidth=10**8)
    monkeypatch.setitem(HARDWARE, slow.name, slow)
    for module in (search, host_room):
        monkeypatch.setattr(module, "certify", partial(certify, target_gap=0.5))


def resnet() -> TrainingStep:
    torch.manual_seed(0)

    def run(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    model = zoo.build("resnet18", classes=10)
    return TrainingStep(model, run, lambda: (torch.randn(2, 3, 32, 32), torch.randint(10, (2,))))


def gpt() -> TrainingStep:
    torch.manual_seed(0)
    model = zoo.build("gpt", layers=2, context=16, vocabulary=50, width=16, heads=2, dropout=0.3)
    return TrainingStep(
        model, lambda model, x: model(x).logsumexp(-1).mean(), lambda: torch.randint(50, (4, 16))
    )


def row(*, twice: bool = False) -> TrainingStep:
    """Return a step of children in a row, of which the model itself is the container."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2)]

    def run(model, x):
        return ((model(x) * model(-x)) if twice else model(x)).square().mean()

    return TrainingStep(nn.Sequential(*layers, nn.Linear(16, 2)), run, lambda: torch.randn(32, 16))


class Checkpointed(nn.Module):
    """A program that checkpoints half of its layers itself."""

    def __init__(self):
        super().__init__()
        self.mine = nn.Sequential(*(row().model for _ in range(1)))
        self.rest = nn.Sequential(nn.Linear(2, 16), row().model)

    def forward(self, x):
        return self.rest(checkpoint(self.mine, x, use_reentrant=False))


def trained(step: TrainingStep, steps: int, **options) -> Offload:
    """Train plainly and under plans made on the way, side by side; every step must be the same."""
    plain, planned = step.model, copy.deepcopy(step.model)
    models = plain, planned
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in models]
    training = offload(planned, "auto", **{**FAST, **options})
    with training:
        for _ in range(steps):
            batch, state, losses = step.make_batch(), torch.get_rng_state(), []
            for model in models:
                torch.set_rng_state(state)
                loss = step.run(model, batch)
                loss.backward()
                losses.append(loss.detach())
            pairs = zip(plain.parameters(), planned.parameters(), strict=True)
            assert torch.equal(*losses)
            assert all(torch.equal(one.grad, other.grad) for one, other in pairs)
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
            states = [model.state_dict().values() for model in models]
            assert all(map(torch.equal, *states))
    assert training.report.planned, training.report.deviation
    assert training.report.within_limit
    return training


@pytest.mark.parametrize("make", [resnet, gpt, row])
def test_what_is_cheap_runs_again_and_training_is_bitwise_the_same(make):
    alone = trained(make(), 3, memory="25%", recompute="none")
    assert alone.steps == {"studied": 1, "planned": 2}
    (without,) = alone.certificates
    assert without.result.execution is None
    both = trained(make(), 5, memory="25%")
    # One step is captured; when the next begins, the plan is made and modules are wrapped.
    assert both.steps == {"studied": 1, "planned": 4}
    assert both.report.follows_prediction
    (certificate,) = both.certificates
    assert certificate.result.execution.repeated > 0
    assert verify(certificate.to_json()).valid
    assert certificate.problem.platform.memory == without.problem.platform.memory
    assert certificate.result.objective < without.result.objective


def test_with_an_example_even_the_first_step_runs_things_again():
    step = row()
    example = TrainingStep(step.model, step.run, step.batch)
    training = trained(step, 2, memory="25%", example=example)
    assert training.steps == {"planned": 2}
    assert training.certificates[0].result.execution.repeated > 0


def test_times_of_what_runs_again_are_measured():
    training = trained(row(), 7, memory="25%", hardware=None)
    (certificate,) = training.certificates
    assert certificate.problem.source["measured"]
    assert all(each.duration > 0 for each in certificate.problem.computed.computations)
    assert training.steps["planned"] >= 2


def test_a_model_that_a_step_calls_twice():
    training = trained(row(twice=True), 4, memory="25%")
    assert training.steps == {"studied": 1, "planned": 3}
    assert training.certificates[0].result.execution.repeated > 0


def test_what_the_program_itself_checkpoints_is_left_to_it():
    torch.manual_seed(0)
    step = TrainingStep(
        Checkpointed(), lambda model, x: model(x).square().mean(), lambda: torch.randn(32, 16)
    )
    training = trained(step, 5, memory="25%")
    segments = training.step_plans[0].segments.segments
    assert training.certificates[0].result.execution is not None
    assert not any(each.path.startswith("mine") for each in segments)


def test_what_changes_in_place_is_planned_by_offloading_alone(monkeypatch):
    build = Capture.__init__

    def unclear(self, *arguments, **named):
        build(self, *arguments, **named)
        object.__setattr__(self, "network", None)

    with monkeypatch.context() as patch:
        patch.setattr(Capture, "__init__", unclear)
        with pytest.warns(OffloadWarning, match="what the step computes from what is not clear"):
            training = trained(row(), 3, memory="25%")
    assert training.certificates[0].result.execution is None
    assert training.certificates[0].problem.computed is None
    with warnings.catch_warnings(action="error"):
        trained(row(), 3, memory="25%", recompute="none")


def test_that_training_waits_for_a_plan_that_runs_modules_again_is_said(caplog):
    # Nothing may move, so that there is no makeshift.
    training = trained(row(), 3, memory="90%", host_memory=1)
    assert "so there is no quick plan: the training waits for a plan" in caplog.text
    assert training.steps["planned"] > 0


def test_segments_that_the_model_refuses_are_named_and_plans_only_move(monkeypatch):
    replace = Segments.replace

    def refuse(self, number, program):
        if program:
            raise InputError("0 cannot run again: it is a secret")
        replace(self, number, program)

    monkeypatch.setattr(Segments, "replace", refuse)
    with pytest.warns(OffloadWarning, match="nothing runs again.*it is a secret"):
        training = trained(row(), 3, memory="25%")
    assert training.steps == {"studied": 1, "planned": 2}
    assert [each.result.execution for each in training.certificates] == [None]


def test_nothing_is_left_of_what_was_wrapped():
    step = row()
    model = copy.deepcopy(step.model)

    def state():
        hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
        return hooks, [sorted(vars(m)) for m in model.modules()]

    before = state()
    with offload(model, "auto", memory="25%", **FAST) as training:
        for _ in range(4):
            step.run(model, step.make_batch()).backward()
    assert training.steps["planned"] == 3
    assert state() == before
    # The certificates are those of any other joint plan.
    with offload(model, training.certificates, count=True) as again:
        step.run(model, step.make_batch()).backward()
        assert again.report.follows_prediction
    assert state() == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"plan": "auto", "memory": "1B", "recompute": "chain"}, 'must be "any" or "none"'),
        ({"plan": "auto", "memory": "1B", "recompute": True}, 'must be "any" or "none", not True'),
    ],
)
def test_bad_input_is_named(given, message):
    with pytest.raises(InputError, match=message):
        offload(row().model, **given)
