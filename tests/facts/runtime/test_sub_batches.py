"""Steps executed in sub-batches under plans: bitwise what plain sub-batched training does."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import offcert
from offcert.core.errors import InputError
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import Offload
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.step_plan import StepPlan, step_plans
from offcert.runtime.sub_batches import sub_batch_steps, sub_batches
from support.runtime.captured import evict_everything, problem_of_step


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, 3),
    )


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def batches() -> list[dict[str, torch.Tensor]]:
    rng = torch.Generator().manual_seed(1)
    return [
        {
            "x": torch.randn(10, 2, 4, 4, generator=rng),
            "y": torch.randint(3, (10,), generator=rng),
        }
        for _ in range(2)
    ]


def train(model: nn.Module, size: int) -> list[torch.Tensor]:
    """Return everything that two steps leave behind."""
    torch.manual_seed(7)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for batch in batches():
        for part in sub_batches(batch, size):
            loss = loss_of(model, part.batch)
            part.scaled(loss).backward()
            found.append(loss.detach())
        found += [parameter.grad.clone() for parameter in model.parameters()]
        optimiser.step()
        optimiser.zero_grad()
        found += [value.clone() for value in model.state_dict().values()]
    return found


def planned(model: nn.Module, steps: list[TrainingStep]) -> Offload:
    """Return the model under plans in which everything leaves."""
    found: list[StepPlan] = []
    for step in steps:
        problem = problem_of_step(step)
        found += step_plans(evict_everything(problem), problem)
    return Offload(model, found, FollowOptions(count=True))


def same(ours: list[torch.Tensor], plain: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


@pytest.mark.parametrize(("size", "kinds"), [(5, 1), (4, 2), (10, 1), (1, 1)])
def test_plans_for_every_part_give_the_gradients_of_plain_sub_batches(
    size: int, kinds: int
) -> None:
    plain = train(network(), size)
    model = network()
    steps = sub_batch_steps(TrainingStep(copy.deepcopy(model), loss_of, batches()[0]), size)
    assert len(steps) == kinds
    with planned(model, steps) as training:
        ours = train(model, size)
    assert same(ours, plain)
    parts = 2 * -(-10 // size)
    assert training.steps == Counter(planned=parts)
    assert training.report.offloaded_bytes > 0


def test_a_remainder_follows_the_plan_of_the_larger_part() -> None:
    plain = train(network(), 4)
    model = network()
    steps = sub_batch_steps(TrainingStep(copy.deepcopy(model), loss_of, batches()[0]), 4)[:1]
    with planned(model, steps) as training:
        ours = train(model, 4)
    assert same(ours, plain)
    assert training.steps == Counter(planned=6)
    assert training.report.offloaded_bytes > 0


def test_without_batch_normalisation_gradients_are_those_of_the_batch_up_to_rounding() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    batch = {"x": torch.randn(10, 6, dtype=torch.float64), "y": torch.randint(3, (10,))}
    loss_of(model, batch).backward()
    whole = [parameter.grad for parameter in model.parameters()]
    for size in (1, 3, 5):
        model.zero_grad()
        for part in sub_batches(batch, size):
            part.scaled(loss_of(model, part.batch)).backward()
        for parameter, expected in zip(model.parameters(), whole, strict=True):
            torch.testing.assert_close(parameter.grad, expected)


def test_a_certified_plan_for_a_sub_batch_needs_less_than_the_batch() -> None:
    model = network()
    step = TrainingStep(model, loss_of, batches()[0])
    (part,) = offcert.sub_batch_steps(step, 5)
    whole, half = (offcert.profile(each, hardware="v100-pcie") for each in (step, part))
    assert half.trace.least_memory < whole.trace.least_memory
    certificate = offcert.certify(half.with_memory("25%"), time_limit=1)
    plain = train(network(), 5)
    with offcert.offload(model, certificate, count=True) as training:
        ours = train(model, 5)
        assert training.report.within_limit
    assert same(ours, plain)
    assert training.steps == Counter(planned=4)


def test_batches_of_any_form() -> None:
    scale = torch.tensor(2.0)
    batch = OrderedDict(a=[torch.arange(6).reshape(2, 3), ("text", scale)], b=None)
    parts = list(sub_batches(batch, 1))
    assert [part.size for part in parts] == [1, 1]
    assert [(part.first, part.last) for part in parts] == [(True, False), (False, True)]
    assert parts[1].batch["a"][0].tolist() == [[3, 4, 5]]
    assert parts[0].batch["a"][1] == ("text", scale)
    columns = list(sub_batches(batch, 2, dim=1))
    assert [part.batch["a"][0].shape[1] for part in columns] == [2, 1]
    assert sum(part.share for part in columns) == 1
    # Views: nothing is copied.
    whole = batch["a"][0]
    assert columns[0].batch["a"][0].data_ptr() == whole.data_ptr()


def test_batches_that_cannot_be_divided_are_refused_at_once() -> None:
    for batch, reason in (
        ([torch.zeros(2), torch.zeros(3)], "as many items each, not 2 and 3"),
        ({"x": 1}, "must hold a tensor"),
        (torch.zeros(0, 3), "must not be empty"),
    ):
        with pytest.raises(InputError, match=reason):
            sub_batches(batch, 1)
    with pytest.raises(InputError, match="size must be at least 1"):
        sub_batches(torch.zeros(2), 0)
    with pytest.raises(InputError, match="none is 1"):
        sub_batches(torch.zeros(2), 1, dim=1)
