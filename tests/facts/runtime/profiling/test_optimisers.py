"""Bytes of optimisers' states: what is foreseen is what the first step makes."""

import copy

import pytest
import torch
from torch import nn
from transformers.optimization import Adafactor

from offcert.core.errors import InputError
from offcert.runtime.profiling.optimisers import (
    bytes_of,
    named_state_bytes,
    optimiser_bytes,
    state_bytes,
)
from offcert.runtime.profiling.profile import profile
from support.networks import own_steps


def trained_once(model: nn.Module, optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
    model(torch.ones(2, 8)).sum().backward()
    optimiser.step()
    return optimiser


class Lion(torch.optim.Optimizer):
    """One of those that people write, or install."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                state = self.state[parameter]
                state.setdefault("mean", torch.zeros_like(parameter)).lerp_(parameter.grad, 0.1)
                parameter.sub_(state["mean"].sign(), alpha=0.1)


CASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "adamw_torch_fused": (torch.optim.AdamW, {"fused": True}),
    "AdamW foreach": (torch.optim.AdamW, {"foreach": True}),
    "adafactor": (Adafactor, {}),
    "lion": (Lion, {}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    "nadam": (torch.optim.NAdam, {}),
    "adafactor of torch": (torch.optim.Adafactor, {}),
    "moments": (Adafactor, {"beta1": 0.9, "relative_step": False, "lr": 0.1}),
}
UNNAMED = ("amsgrad", "rmsprop", "nadam", "adafactor of torch", "moments")


@pytest.mark.parametrize("name", CASES)
def test_foreseen_bytes_are_those_that_are_there_after_a_step(name):
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3))
    model[1].bias.requires_grad_(False)
    kind, options = CASES[name]
    optimiser = kind(model.parameters(), **options)
    before = copy.deepcopy(optimiser.state_dict())
    foreseen = state_bytes(optimiser)
    assert optimiser.state_dict() == before
    measured = state_bytes(trained_once(model, optimiser))
    assert bool(optimiser.state) is (name != "sgd")
    assert foreseen == measured
    if name not in UNNAMED:
        assert named_state_bytes(name, model) == measured


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize(
    ("options", "during"),
    [
        # By CUDA's default the roots of all second moments; else three copies of one parameter.
        ({}, 4 * (8 * 16 + 16 + 16 * 3 + 3)),
        ({"foreach": True}, 4 * (8 * 16 + 16 + 16 * 3 + 3)),
        ({"foreach": False}, 3 * 4 * 8 * 16),
        ({"fused": True}, 0),
    ],
)
def test_what_a_step_takes_beside_the_state(options, during, stepped):
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3))
    optimiser = torch.optim.AdamW(model.parameters(), **options)
    if stepped:
        trained_once(model, optimiser)
    assert bytes_of(optimiser).during == during
    name = "adamw-fused" if "fused" in options else "adamw"
    if options.get("foreach") is not False:
        assert optimiser_bytes(name, model) == bytes_of(optimiser)
    source = profile(model, "2x8", hardware="t4", optimiser=optimiser).source
    assert source.get("optimiser_step", 0) == during


def test_named_optimisers_take_as_much_as_those_that_are_there():
    model = nn.Linear(64, 3, dtype=torch.bfloat16)
    there = bytes_of(Adafactor(model.parameters()))
    assert 0 < there.during <= optimiser_bytes("adafactor", model).during
    assert optimiser_bytes("sgd", model).during == optimiser_bytes("adamw-8bit", model).during == 0


def test_states_of_a_narrow_type_are_as_wide_as_each_optimiser_makes_them():
    model = nn.Linear(8, 3, dtype=torch.bfloat16)
    # PyTorch's states have the parameters' type; Trainer's Adafactor and Lion have float32.
    assert named_state_bytes("adamw", model) == 2 * 2 * 27 + 2 * 4
    assert state_bytes(torch.optim.AdamW(model.parameters())) == 2 * 2 * 27 + 2 * 4
    assert named_state_bytes("lion", model) == 4 * 27
    assert state_bytes(Adafactor(model.parameters())) == 4 * (8 + 3 + 3 + 2)
    assert named_state_bytes("adafactor", model) == 4 * (8 + 3 + 3 + 2)


def test_states_of_8_bits_share_a_number_every_256():
    """As bitsandbytes 0.50 makes them; small parameters, and for Trainer embeddings, do not."""
    model = nn.Sequential(nn.Linear(300, 40), nn.Linear(40, 7))
    small = 4 * (40 + 280 + 7)
    assert named_state_bytes("lion-8bit", model) == 12_000 + 4 * 47 + small
    assert named_state_bytes("adamw_bnb_8bit", model) == 2 * (12_000 + 4 * 47 + small)
    assert named_state_bytes("AdamW8bit", nn.Embedding(100, 64)) == 2 * 4 * 6400

    parameters = list(model.parameters())
    made = {
        name: type(name, (Lion,), {"__module__": "bitsandbytes.optim"})(parameters)
        for name in ("PagedAdamW8bit", "AdamW", "AdEMAMix")
    }
    assert state_bytes(made["PagedAdamW8bit"]) == named_state_bytes("adamw-8bit", model)
    assert state_bytes(made["AdamW"]) == 2 * 4 * sum(map(torch.numel, parameters))
    assert state_bytes(made["AdEMAMix"]) is None


def test_what_is_not_known_is_refused_by_name_until_it_has_a_state():
    model = nn.Linear(8, 3)
    optimiser = torch.optim.LBFGS(model.parameters())
    with pytest.raises(InputError, match="the state of LBFGS is not known before its first step"):
        profile(model, "2x8", hardware="t4", optimiser=optimiser)
    optimiser.state[model.weight]["d"] = torch.zeros(5)
    found = profile(model, "2x8", hardware="t4", optimiser=optimiser)
    assert found.source["uncounted"]["optimiser"] == 20
    with pytest.raises(InputError, match="optimiser must be one of sgd, momentum, adam, adamw,"):
        named_state_bytes("adamw_torch_4bit", model)
    with pytest.raises(InputError, match="not 'adamv'; did you mean adam"):
        named_state_bytes("adamv", model)


def test_what_depends_on_shapes_is_not_computed_from_the_bytes_of_gradients():
    problem = profile(nn.Linear(8, 3), "2x8", hardware="t4")
    assert problem.with_device_memory(10**6, "AdamW_torch") == problem.with_device_memory(
        10**6, "adamw"
    )
    with pytest.raises(InputError, match="its state depends on the shapes of the parameters"):
        problem.with_device_memory(10**6, "adafactor")


def test_the_optimiser_of_a_step_is_counted_and_a_named_one_goes_first():
    step = own_steps.two_inputs(optimiser="Adam")
    size = sum(p.nbytes for p in step.model.parameters())
    count = len(list(step.model.parameters()))
    found = profile(step, hardware="t4", device_memory=10**6)
    taken = found.source["uncounted"]
    assert taken["optimiser"] == 2 * size + 4 * count
    assert found.platform.memory == 10**6 - sum(taken.values())
    named = profile(step, hardware="t4", optimiser="sgd")
    assert named.source["uncounted"]["optimiser"] == 0
    other = profile(own_steps.two_inputs(optimiser="RMSprop"), hardware="t4")
    assert other.source["uncounted"]["optimiser"] == size + 4 * count
