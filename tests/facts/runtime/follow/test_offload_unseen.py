"""Training that passes a plan by is told of, once, and whatever waits for it is undone."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimisers

from offcert.core.errors import PlanError
from offcert.runtime.follow.offload import Offload, OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from support.runtime.captured import evict_everything, mean_step, problem_of_step


def network():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2)) for _ in range(3)]
    return nn.Sequential(*layers, nn.Linear(8, 8))


def context(model, **options) -> Offload:
    problem = problem_of_step(mean_step(copy.deepcopy(model), 4, 8))
    return follow(model, evict_everything(problem), problem, FollowOptions(**options))


def waiting(model) -> int:
    hooks = [each._post_accumulate_grad_hooks or () for each in model.parameters()]
    return sum(map(len, hooks)) + len(optimisers._global_optimizer_post_hooks)


def compiled(model):
    return torch.compile(model, backend="eager")


WAYS = {
    "forward": lambda model: model.forward,
    "inside": lambda model: model[1],
    "compiled": compiled,
}


def trained(model, called):
    """Train for three steps; return what has become of the model."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1)
    for _ in range(3):
        called(torch.randn(4, 8)).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return list(model.state_dict().values())


@pytest.mark.parametrize("way", WAYS)
def test_the_first_step_that_passes_the_hooks_by_is_told(way):
    model = network()
    plain = copy.deepcopy(model)
    called, called_plainly = WAYS[way](model), WAYS[way](plain)
    made = context(model)
    expected = trained(plain, called_plainly)
    with pytest.warns(OffloadWarning, match="no call of it has been seen") as told, made:
        found = trained(model, called)
    assert all(map(torch.equal, expected, found))
    said = [str(each.message) for each in told if "has been seen" in str(each.message)]
    # The end says again that nothing was moved, with the reason.
    assert len([each for each in said if not each.startswith("nothing was moved")]) == 1
    if way == "compiled":
        assert "backend=offcert.backend(certificate)" in said[0]
    assert made.steps == {"unplanned": 1}
    assert waiting(model) == 0


@pytest.mark.parametrize("way", WAYS)
def test_who_is_strict_gets_an_error(way):
    model = network()
    made, called = context(model, strict=True), WAYS[way](model)
    with pytest.raises(PlanError, match="no call of it has been seen"), made:
        trained(model, called)
    assert "no call of it has been seen" in made.report.deviation
    assert waiting(model) == 0


def test_a_call_of_the_model_ends_the_waiting():
    model = network()
    other = nn.Linear(2, 2)
    # A counter waits for gradients, too.
    made = context(model, count=False)
    with made:
        assert waiting(model) == 3
        # No matter of the model.
        other(torch.ones(1, 2)).sum().backward()
        torch.optim.SGD(other.parameters(), lr=0.1).step()
        with torch.no_grad():
            model(torch.randn(4, 8))
        assert waiting(model) == 3
        model(torch.randn(4, 8)).square().mean().backward()
        assert waiting(model) == 0
        assert made.report.planned
    assert made.steps == {"planned": 1}


def test_a_context_that_is_dropped_waits_no_more():
    model = network()
    made = context(model).__enter__()
    assert waiting(model) == 3
    del made
    assert waiting(model) == 0


@pytest.mark.parametrize("in_place", [False, True])
def test_compiling_the_whole_model_is_told_before_anything_trains(in_place):
    before, model = torch.compile, network()
    with warnings.catch_warnings(record=True) as told, context(model):
        warnings.simplefilter("always")
        if in_place:
            model.compile(backend="eager")
        else:
            torch.compile(model, backend="eager")
        assert "makes code of the whole model" in str(told[0].message)
        assert "backend=offcert.backend(certificate)" in str(told[0].message)
    assert torch.compile is before


def test_who_is_strict_cannot_compile_the_whole_model():
    model = network()
    with (
        pytest.raises(PlanError, match="makes code of the whole model"),
        context(model, strict=True),
    ):
        torch.compile(model, backend="eager")


def test_compiling_a_part_or_with_a_plan_is_not_told():
    before, model, other = torch.compile, network(), network()

    def follows(module, inputs):
        raise AssertionError

    follows.__name__ = "offcert"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with context(other), context(model):
            torch.compile(model[1], backend="eager")
            torch.compile(model, backend=follows)
            assert not told
            assert torch.compile is not before
    assert torch.compile is before
