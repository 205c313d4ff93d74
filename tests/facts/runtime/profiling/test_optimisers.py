"""Bytes of optimisers' states: what is foreseen is what the first step makes."""

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.profiling.optimisers import named_state_bytes, state_bytes
from offcert.runtime.profiling.profile import profile
from support.networks import own_steps


def trained_once(model: nn.Module, optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
    model(torch.ones(2, 8)).sum().backward()
    optimiser.step()
    return optimiser


CASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    None: (torch.optim.Adam, {"amsgrad": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_foreseen_bytes_are_those_that_are_there_after_a_step(name):
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3))
    model[1].bias.requires_grad_(False)
    kind, options = CASES[name]
    optimiser = kind(model.parameters(), **options)
    foreseen = state_bytes(optimiser)
    measured = state_bytes(trained_once(model, optimiser))
    assert bool(optimiser.state) is (name != "sgd")
    assert foreseen == measured
    if name is not None:
        assert named_state_bytes(name, model) == measured


def test_an_optimiser_of_another_kind_is_known_once_it_has_a_state():
    model = nn.Linear(8, 3)
    optimiser = torch.optim.RMSprop(model.parameters())
    assert state_bytes(optimiser) is None
    assert (
        state_bytes(trained_once(model, optimiser)) == sum(p.nbytes for p in model.parameters()) + 8
    )
    with pytest.raises(InputError, match="optimiser must be one of sgd, momentum, adam, adamw"):
        named_state_bytes("lion", model)


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
    unknown = profile(own_steps.two_inputs(optimiser="RMSprop"), hardware="t4")
    assert "optimiser" not in unknown.source["uncounted"]
