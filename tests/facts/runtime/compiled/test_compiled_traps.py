"""What programs do beside the plain step, compiled: the same numbers, and what stays is told."""

import copy
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from offcert.runtime.compiled.nodes import is_dense
from offcert.runtime.compiled.operators import OFFLOAD, RELOAD, WAIT
from offcert.runtime.watch.guard import OffloadWarning
from support.runtime.compiled_cases import (
    as_it_is,
    everything,
    leaving,
    loss_of,
    plain,
    problem_for,
    same,
    step_of,
    train,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


def compiled_for(model: nn.Module, batch: Any, **options: Any) -> Any:
    return leaving(problem_for(model, batch), **options)


def test_a_second_backward_pass_finds_what_it_needs() -> None:
    model, batch = Net(), torch.randn(4, 8)
    problem = problem_for(model, batch)
    gradients = []
    for backend in (leaving(problem, strict=True), plain(problem, as_it_is)):
        torch._dynamo.reset()
        copied = copy.deepcopy(model)
        loss = loss_of(torch.compile(copied, backend=backend), batch)
        loss.backward(retain_graph=True)
        loss.backward()
        gradients.append([parameter.grad for parameter in copied.parameters()])
    assert same(*gradients)


class Trainer(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"model": model})

    def forward(self, x: torch.Tensor) -> Any:
        return self.parts["model"](x)


def test_what_is_compiled_may_be_around_the_model() -> None:
    model, batch = Net(), torch.randn(4, 8)
    compiled = compiled_for(model, batch, strict=True)
    torch._dynamo.reset()
    copied = copy.deepcopy(model)
    loss_of(torch.compile(lambda x: copied(x), backend=compiled), batch).backward()
    loss_of(model, batch).backward()
    for theirs, ours in zip(model.parameters(), copied.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert compiled.report.complete


class Beside(nn.Module):
    """Has one more graph than the one that was captured."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        x = self.net(x)
        torch._dynamo.graph_break()
        return x.sin().square()


def test_a_graph_beside_those_of_a_plan_is_not_missed() -> None:
    net, batch = Net(), torch.randn(4, 8)
    problem = problem_for(net, batch)
    compiled = leaving(problem, strict=True)
    found = train(Beside(net), batch, compiled)
    assert same(found, train(Beside(net), batch, plain(problem, as_it_is)))
    # One of the two is none of those that were captured, and nothing of the plan is missing.
    assert sorted(each.complete for each in compiled.reports) == [False, True]
    assert compiled.report.complete


@pytest.fixture(scope="module")
def refusals() -> dict[str, str]:
    """Say what is raised in each case, and why; compilations that fail leave a process another one.

    Where Python calls from Python take no short cut any more, callers hold what they pass, and
    tests that look who holds a tensor would see it.
    """
    said = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("failing_compilation.py"))],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ).stdout
    return dict(line.split(": ", 1) for line in said.splitlines())


def test_shapes_that_change_are_refused_by_name(refusals: dict[str, str]) -> None:
    model, batch = Net(), torch.randn(4, 8)
    compiled = compiled_for(model, batch)
    torch._dynamo.reset()
    runs = torch.compile(copy.deepcopy(model), backend=compiled, dynamic=True)
    loss = loss_of(runs, batch)
    with pytest.warns(OffloadWarning, match="its shapes are dynamic"):
        loss.backward()
    assert torch.equal(loss, loss_of(model, batch))
    assert compiled.report.refused is not None
    assert refusals["strict"] == "InputError: its shapes are dynamic"


@pytest.mark.parametrize("option", ["mode", "options"])
def test_modes_and_options_are_refused_by_name(option: str, refusals: dict[str, str]) -> None:
    assert refusals[option] == f"InputError: follows a plan without {option}"


def test_evaluation_has_no_plan() -> None:
    compiled = everything("mlp")
    step = step_of("mlp")
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(step.model, backend=compiled)(step.batch)
    assert torch.equal(found, step.model(step.batch))
    assert compiled.reports == []


# The parts.


def test_dense_is_what_pytorch_says() -> None:
    rng = random.Random(2)
    for _ in range(300):
        shape = [rng.randint(1, 3) for _ in range(rng.randint(0, 3))]
        stride = [rng.randint(0, 6) for _ in shape]
        tensor = torch.empty_strided(shape, stride)
        assert is_dense(tensor) == torch.ops.aten.is_non_overlapping_and_dense(tensor)


def test_copies_are_made_when_they_are_waited_for() -> None:
    source = torch.arange(6.0).view(2, 3)
    copied = OFFLOAD(source)
    assert copied.isnan().all()
    source.add_(1)
    waited = WAIT(copied, None, source)
    assert waited.data_ptr() == copied.data_ptr()
    assert torch.equal(copied, torch.arange(6.0).view(2, 3) + 1)
    back = RELOAD(copied, torch.device("cpu"), [2, 3], [1, 2])
    assert back.stride() == (1, 2)
    WAIT(back, None, copied)
    assert torch.equal(back, copied)
    with pytest.raises(RuntimeError, match="no copy to this tensor has begun"):
        WAIT(back, None, None)
