"""What programs do beside the plain step, compiled: the same numbers, and what stays is told."""

import copy
import itertools
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import offcert
from offcert.core.errors import InputError
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.compiled.anchors import Anchors, _longest
from offcert.runtime.compiled.graph_pair import _beginning
from offcert.runtime.compiled.operators import OPERATORS
from offcert.runtime.compiled.storages import is_dense
from offcert.runtime.watch.guard import OffloadWarning
from support.runtime.captured import evict_everything, problem_of_step
from support.runtime.compiled_cases import (
    as_it_is,
    everything,
    loss_of,
    problem_for,
    problem_of,
    reference,
    same,
    step_of,
    train,
    train_quietly,
)


class Net(nn.Module):
    """Breaks the graph, or calls a module twice."""

    def __init__(self, what: str = "") -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.what = what

    def forward(self, x: torch.Tensor) -> Any:
        x = torch.tanh(self.b(torch.tanh(self.a(x))))
        if self.what == "breaks":
            torch._dynamo.graph_break()
        if self.what in ("breaks", "twice"):
            x = torch.tanh(self.b(torch.sin(x)))
        return self.c(x)


class Holding(Net):
    """Returns what it has saved, too."""

    def forward(self, x: torch.Tensor) -> Any:
        held = torch.tanh(self.a(x))
        return self.c(torch.tanh(self.b(held))), held.view(4, -1)


def compiled_for(model: nn.Module, batch: Any, **options: Any) -> Any:
    problem = problem_for(model, batch)
    return offcert.backend(evict_everything(problem), problem, compiler=as_it_is, **options)


def expected_of(model: nn.Module, batch: Any) -> list[torch.Tensor]:
    return train(model, batch, offcert.backend(Plan(), problem_of("mlp"), compiler=as_it_is))


def test_what_the_caller_holds_stays() -> None:
    model, batch = Holding(), torch.randn(4, 8)
    compiled = compiled_for(model, batch)
    with pytest.warns(OffloadWarning, match="which the caller holds: x:after a"):
        found = train(model, batch, compiled)
    assert same(found, expected_of(model, batch))
    report = compiled.report
    assert [each.size for each in report.stays] == [4 * 16 * 4]
    assert 0 < report.share < 1
    assert compiled.carried_bytes == report.carried_bytes


def test_a_module_may_be_called_twice() -> None:
    model, batch = Net("twice"), torch.randn(4, 8)
    compiled = compiled_for(model, batch, strict=True)
    assert same(train(model, batch, compiled), expected_of(model, batch))
    assert any("#2" in each.tensor for each in compiled.report.carried)


def test_each_graph_of_several_does_its_part() -> None:
    model, batch = Net("breaks"), torch.randn(4, 8)
    compiled = compiled_for(model, batch)
    assert same(train_quietly(model, batch, compiled), expected_of(model, batch))
    first, second = compiled.reports
    # Of the module that both call, nobody knows which call is which.
    assert [each.tensor for each in first.carried] == ["x:after a"]
    assert {each.tensor for each in second.carried}.isdisjoint({"x:after a"})
    for report in (first, second):
        assert any("b is called again in another graph" in each.why for each in report.stays)
        assert not report.complete
    assert compiled.carried_bytes == first.carried_bytes + second.carried_bytes


class Joins(nn.Module):
    """A layer of a dense network: it is given all that was made before."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.inner = nn.Linear(4 * parts, 4)
        self.outer = nn.Linear(4, 4)

    def forward(self, made: list[torch.Tensor]) -> torch.Tensor:
        return torch.tanh(self.outer(torch.tanh(self.inner(torch.cat(made, 1)))))


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Joins(n + 1) for n in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [x]
        for layer in self.layers:
            made.append(layer(made))
        return torch.cat(made, 1)


def test_gradients_that_are_complete_late_are_placed_by_what_they_are_of() -> None:
    model, batch = Dense(), torch.randn(4, 4)
    step = TrainingStep(model, loss_of, batch)
    problem = offcert.profile(step, hardware="v100-pcie")
    compiled = offcert.backend(evict_everything(problem), problem, strict=True, compiler=as_it_is)
    assert same(train(model, batch, compiled), expected_of(model, batch))
    carried = compiled.report.carried
    assert len(carried) >= 6
    assert [each.tensor for each in carried if not each.exact] == []


def test_a_second_backward_pass_finds_what_it_needs() -> None:
    model, batch = Net(), torch.randn(4, 8)
    compiled = compiled_for(model, batch, strict=True)
    torch._dynamo.reset()
    gradients = []
    for backend in (compiled, None):
        copied = copy.deepcopy(model)
        runs = copied if backend is None else torch.compile(copied, backend=backend)
        loss = loss_of(runs, batch)
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


@pytest.mark.parametrize("around", [Trainer, lambda model: lambda x: model(x)])
def test_what_is_compiled_may_be_around_the_model(around: Any) -> None:
    model, batch = Net(), torch.randn(4, 8)
    compiled = compiled_for(model, batch, strict=True)
    torch._dynamo.reset()
    copied = copy.deepcopy(model)
    loss_of(torch.compile(around(copied), backend=compiled), batch).backward()
    loss_of(model, batch).backward()
    assert all(
        torch.equal(theirs.grad, ours.grad)
        for theirs, ours in zip(model.parameters(), copied.parameters(), strict=True)
    )
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


def test_another_batch_size_keeps_its_tensors() -> None:
    step = step_of("mlp")
    compiled = everything("mlp")
    batch = torch.randn(3, 8)
    with pytest.warns(OffloadWarning, match="0 of 4096 planned bytes"):
        found = train(step.model, batch, compiled)
    assert same(found, train(step.model, batch))


def test_what_the_graph_computes_otherwise_is_named() -> None:
    # The compiler keeps which elements were dropped as truth values, the program as numbers.
    step = step_of("dropout")
    compiled = everything("dropout")
    with pytest.warns(OffloadWarning, match=r"no float32 tensor of shape 16x32 .* x:1"):
        found = train(step.model, step.batch, compiled)
    assert same(found, reference("dropout"))
    assert 0 < compiled.report.share < 1


def test_evaluation_has_no_plan() -> None:
    compiled = everything("mlp")
    step = step_of("mlp")
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(step.model, backend=compiled)(step.batch)
    assert torch.equal(found, step.model(step.batch))
    assert compiled.reports == []


def test_a_step_that_calls_the_model_twice_is_refused() -> None:
    model = Net()
    step = TrainingStep(model, lambda m, b: loss_of(m, b) + loss_of(m, 2 * b), torch.randn(4, 8))
    problem = problem_of_step(step)
    with pytest.raises(InputError, match="calls the model 2 times"):
        offcert.backend(evict_everything(problem), problem)


@pytest.mark.parametrize("seed", range(2))
def test_wherever_operations_are_taken_to_begin_the_numbers_are_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That the plan is followed depends on where its operations begin, that it is right does not.
    rng = random.Random(seed)

    def begins(anchors: Anchors, operation: int) -> int:
        return rng.randrange(len(anchors._line.nodes))

    monkeypatch.setattr(Anchors, "begins", begins)
    step, compiled = step_of("gpt"), everything("gpt")
    assert same(train_quietly(step.model, step.batch, compiled), reference("gpt"))
    report = compiled.report
    assert report.carried_bytes > 0
    assert not all(each.exact for each in report.carried)


# The parts.


def test_the_longest_row_is_found() -> None:
    rng = random.Random(1)
    for _ in range(300):
        row = [rng.choice([None, *range(6)]) for _ in range(rng.randint(0, 8))]
        found = _longest(row)
        values = [row[number] for number in found]
        assert found == sorted(set(found))
        assert None not in values
        assert values == sorted(values)  # type: ignore[type-var]
        best = max(
            len(chosen)
            for size in range(len(row) + 1)
            for chosen in itertools.combinations([v for v in row if v is not None], size)
            if list(chosen) == sorted(chosen)
        )
        assert len(found) == best


def test_dense_is_what_pytorch_says() -> None:
    rng = random.Random(2)
    for _ in range(300):
        shape = [rng.randint(1, 3) for _ in range(rng.randint(0, 3))]
        stride = [rng.randint(0, 6) for _ in shape]
        tensor = torch.empty_strided(shape, stride)
        assert is_dense(tensor) == torch.ops.aten.is_non_overlapping_and_dense(tensor)


def test_paths_begin_where_most_are_known() -> None:
    known = {"layers.0", "layers.0.fc", "layers.1", "head"}
    assert _beginning(known, known) == ""
    assert _beginning({f"self.model.{path}" for path in known}, known) == "self.model"
    assert _beginning({"a", "b.c"}, known) == ""


def test_copies_are_made_when_they_are_waited_for() -> None:
    source = torch.arange(6.0).view(2, 3)
    copied = OPERATORS.offload(source)
    assert copied.isnan().all()
    source.add_(1)
    waited = OPERATORS.wait(copied, None, source)
    assert waited.data_ptr() == copied.data_ptr()
    assert torch.equal(copied, torch.arange(6.0).view(2, 3) + 1)
    back = OPERATORS.reload(copied, torch.device("cpu"), [2, 3], [1, 2])
    assert back.stride() == (1, 2)
    OPERATORS.wait(back, None, copied)
    assert torch.equal(back, copied)
    with pytest.raises(RuntimeError, match="no copy to this tensor has begun"):
        OPERATORS.wait(back, None, None)


def test_warnings_are_for_those_who_asked_for_a_plan() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, batch = Holding(), torch.randn(4, 8)
        train(model, batch, offcert.backend(Plan(), problem_of("mlp"), compiler=as_it_is), 1)
