"""Steps are planned if their bytes were counted, or those of steps like them."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from offcert.questions.schedule.plan import Plan
from offcert.runtime.follow.offload import Offload
from offcert.runtime.plan.predict import predict
from offcert.runtime.plan.step_plan import step_plan
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
    truth = train(Offload(copy.deepcopy(model), [made], count=True), 5)
    said = train(Offload(model, [made]), 5)
    for turn, ((counted, theirs), (report, ours)) in enumerate(zip(truth, said, strict=True)):
        assert all(map(torch.equal, theirs, ours))
        assert report.planned == counted.planned
        assert counted.peak <= made.limit or not report.planned
        if report.planned and not made.is_idle:
            assert bool(report.peaks) == (turn < 2)
