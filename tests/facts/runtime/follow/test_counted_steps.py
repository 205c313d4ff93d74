"""Steps are planned if their bytes were counted, or those of steps like them."""

import copy
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from offcert.questions.schedule.plan import Plan
from offcert.runtime.follow.offload import Offload, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.predict import predict
from offcert.runtime.plan.step_plan import step_plan
from offcert.runtime.simulated import SimulatedDevice
from offcert.runtime.watch.tracker import LiveBytes
from support.runtime.captured import evict_everything, mean_step, problem_of_step
from support.runtime.joint_training import again, carried_by, problem_of

pytestmark = pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")

WIDTH = 32


class Switched(nn.Module):
    """Does what is particular about it only when it is switched on."""

    def __init__(self):
        super().__init__()
        self.on = True
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)


class OnCpu(Switched):
    """Saves on the host by hooks of its own, weights as well."""

    def forward(self, x):
        with torch.autograd.graph.save_on_cpu() if self.on else nullcontext():
            return x + self.second(nn.functional.gelu(self.first(x)))


class Chunks(Switched):
    """Works on its results, detached, in chunks, which stay."""

    def forward(self, x):
        y = torch.sigmoid(self.second(torch.sigmoid(self.first(x))))
        self.kept = [chunk.detach().clone() for chunk in y.chunk(4)] if self.on else []
        return y * torch.cat(self.kept) if self.kept else y


class Cast(Switched):
    """Casts inside."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.on):
            return torch.sigmoid(self.second(torch.relu(self.first(x)))).float()


class FourTimes(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Cast(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for _ in range(4):
            x = self.block(x)
        return self.head(x)


def on_cpu():
    return nn.Sequential(*(OnCpu() for _ in range(4)))


def chunks():
    return nn.Sequential(*(Chunks() for _ in range(6)))


def made_of(model, *names):
    """Return a plan that has modules run again, within what it needs to the byte."""
    problem, captured = problem_of(mean_step(model, 64, WIDTH))
    found = carried_by(captured, again(*names))
    needed = problem.executed(found.execution).trace.peak_memory
    return step_plan(problem.with_memory(needed), Plan(), found.execution)


def moved(model):
    """Return a plan that moves everything, within what it needs to the byte."""
    problem = problem_of_step(mean_step(model, 64, WIDTH))
    plan = evict_everything(problem)
    return step_plan(problem.with_memory(predict(problem.trace, plan).peak), plan)


def train(context, steps, rows=64):
    found = []
    with context:
        for turn in range(steps):
            torch.manual_seed(turn)
            context.model.zero_grad()
            context.model(torch.randn(rows, WIDTH)).square().mean().backward()
            gradients = [p.grad.clone() for p in context.model.parameters() if p.grad is not None]
            found.append((context.report, gradients))
    return found


def switch(model, on):
    for module in model.modules():
        if isinstance(module, Switched):
            module.on = on


NETWORKS = [(on_cpu, ("1", "2")), (chunks, ("1", "2")), (FourTimes, ("block",))]


@pytest.mark.parametrize("captured", [True, False], ids=["as it trains", "otherwise"])
@pytest.mark.parametrize("runs_again", [False, True])
@pytest.mark.parametrize(("network", "names"), NETWORKS)
def test_no_step_is_planned_that_takes_more_than_the_limit(network, names, runs_again, captured):
    torch.manual_seed(0)
    model = network()
    switch(model, captured)
    made = made_of(model, *names) if runs_again else moved(model)
    switch(model, True)
    truth = train(Offload(copy.deepcopy(model), [made], FollowOptions(count=True)), 5)
    said = train(Offload(model, [made]), 5)
    for turn, ((counted, theirs), (report, ours)) in enumerate(zip(truth, said, strict=True)):
        assert all(map(torch.equal, theirs, ours))
        assert report.planned == counted.planned
        assert counted.peak <= made.limit or not report.planned
        if report.planned and not made.is_idle:
            assert bool(report.peaks) == (turn < 2)


class Passing(TorchDispatchMode):
    """A mode of the user's own."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def counters():
    return [each for each in _get_current_dispatch_mode_stack() if isinstance(each, LiveBytes)]


def hooks_of(model):
    return sum(len(each._post_accumulate_grad_hooks or ()) for each in model.parameters())


def test_modes_around_the_model_alone_are_left_as_they_were_entered():
    model = chunks()
    with Offload(model, [moved(model)]) as training:
        for turn in range(4):
            mode = Passing()
            with mode:
                loss = model(torch.randn(64, WIDTH)).square().mean()
            assert mode not in _get_current_dispatch_mode_stack()
            loss.backward()
            assert bool(counters()) == (turn < 2)
            assert bool(hooks_of(model)) == (turn < 2)
        assert training.report.planned
    assert _get_current_dispatch_mode_stack() == []
    assert hooks_of(model) == 0


def test_larger_inputs_than_before_are_counted():
    model = chunks()
    with Offload(model, [moved(model)]) as training:
        found = []
        for rows in (8, 4, 8, 4, 32, 16, 8, 64, 64, 32):
            model(torch.randn(rows, WIDTH)).square().mean().backward()
            assert training.report.planned
            found.append(bool(training.report.peaks))
    assert found == [True, True, False, False, True, False, False, True, False, False]


class Layers(nn.Module):
    """Of its layers the first few run."""

    def __init__(self):
        super().__init__()
        self.layers, self.depth = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6)), 6

    def forward(self, x):
        for layer in self.layers[: self.depth]:
            x = torch.tanh(nn.functional.linear(x, layer.weight, layer.bias))
        return x


@pytest.mark.parametrize("room", [0, 10**6])
def test_a_graph_of_a_new_shape_is_counted_and_then_known(room):
    torch.manual_seed(0)
    model = Layers()
    model.depth = 3
    (idle,) = [step_plan(problem_of_step(mean_step(model, 64, WIDTH)), Plan())]
    made = replace(idle, limit=idle.limit + room)
    said = []
    with Offload(model, [made]) as training:
        for model.depth in (3, 2, 3, 6, 6, 6, 6, 3):
            model(torch.randn(64, WIDTH)).square().mean().backward()
            said.append(training.report.deviation)
    assert [said[each] for each in (0, 1, 2, 7)] == [None] * 4
    # At first it is only known that it does more.
    assert "it may take more memory" in said[3]
    assert "alive" not in said[3]
    if room:
        # Then it is known that it keeps to the limit all the same.
        assert said[4:7] == [None] * 3
    else:
        assert all("bytes were alive, " in each for each in said[4:7])
        assert said[6].startswith("when such a step was counted, ")


def test_what_the_allocator_of_a_device_was_asked_for_beyond_the_limit_is_said():
    model = chunks()
    problem = problem_of_step(mean_step(model, 64, WIDTH))
    device = SimulatedDevice(replace(problem.platform, bandwidth=Fraction(1)))
    with follow(model, Plan(), problem, FollowOptions(device=device, count=False)) as training:
        for _ in range(2):
            loss = model(torch.randn(64, WIDTH)).square().mean()
            loss.backward()
            assert training.report.planned
        # Whatever takes it: no operator that is counted has.
        loss = model(torch.randn(64, WIDTH)).square().mean()
        more = device.allocate(problem.platform.memory + 512)
        del more
        loss.backward()
        assert "512 more than the limit" in training.report.deviation
        # What was there before the step, and what stays, is not the step's.
        kept = device.allocate(problem.platform.memory + 512)
        loss = model(torch.randn(64, WIDTH)).square().mean()
        kept = [kept, device.allocate(problem.platform.memory + 512)]
        loss.backward()
        assert training.report.planned, training.report.deviation
    assert training.steps == {"planned": 3, "deviating": 1}
