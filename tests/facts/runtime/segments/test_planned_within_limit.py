"""A step counts as planned only if it is within its limit, whatever it does."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from offcert.core.errors import PlanError
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture import read_capture
from offcert.runtime.follow.offload import Offload, OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.predict import predict
from offcert.runtime.plan.step_plan import step_plan
from support.runtime.captured import evict_everything, mean_step, problem_of_step
from support.runtime.joint_training import again, carried_by, problem_of

pytestmark = pytest.mark.filterwarnings("error::offcert.runtime.watch.guard.OffloadWarning")


class Layers(nn.Module):
    """Of six layers the first few run: as modules, or as functions of their weights."""

    def __init__(self, functional=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.functional, self.depth = functional, 3

    def forward(self, x):
        for layer in self.layers[: self.depth]:
            if self.functional:
                x = torch.tanh(nn.functional.linear(x, layer.weight, layer.bias))
            else:
                x = torch.tanh(layer(x))
        return x


def moved(model):
    """Return a plan that moves everything, within no byte more than it needs."""
    problem = problem_of_step(mean_step(model, 64, 32))
    plan = evict_everything(problem)
    return [step_plan(problem.with_memory(predict(problem.trace, plan).peak), plan)]


def idle(model):
    """Return a plan that changes nothing, within what plain training needs."""
    return [step_plan(problem_of_step(mean_step(model, 64, 32)), Plan())]


def run_again(model):
    """Return a plan that only lets a layer run again."""
    problem, captured = problem_of(mean_step(model, 64, 32))
    found = carried_by(captured, again("layers.1"))
    needed = problem.executed(found.execution).trace.peak_memory
    made = step_plan(problem.with_memory(needed), Plan(), found.execution)
    assert made.moves_nothing
    assert made.segments
    return [made]


def train(model, context, depths=(3, 6, 6)):
    reports = []
    with context:
        for model.depth in depths:
            model.zero_grad()
            model(torch.randn(64, 32)).square().mean().backward()
            reports.append(context.report)
    return reports


# Functions are no segments.
KINDS = [(moved, False), (moved, True), (idle, False), (idle, True), (run_again, False)]


@pytest.mark.parametrize(("planned", "functional"), KINDS)
def test_more_layers_than_were_captured(planned, functional):
    model = Layers(functional)
    programs = planned(model)
    counted = Offload(model, programs, FollowOptions(count=True))
    with pytest.warns(OffloadWarning, match="the model's forward pass made .* more than when"):
        first, *others = train(model, counted)
    assert first.planned
    assert first.within_limit
    assert all(report.peak > report.limit for report in others)
    # Without a counter it is seen, too, and warned of once.
    context = Offload(model, programs, FollowOptions(count=False))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        first, *others = train(model, context)
    assert len(found) == 1
    assert first.planned
    assert first.deviation is None
    assert not any(report.planned for report in others)
    assert dict(context.steps) == {"planned": 1, "deviating": 2}
    for count, said in (False, "the model's"), (None, "[0-9]+ bytes were alive.*; the model's"):
        with pytest.raises(PlanError, match=f"the step takes more than its plan says: {said}"):
            train(model, Offload(model, programs, FollowOptions(strict=True, count=count)))


@pytest.mark.parametrize("planned", [moved, idle, run_again])
def test_a_step_that_does_what_the_captured_one_did_is_planned(planned):
    model = Layers()
    model.depth = 6
    programs = planned(model)
    context = Offload(model, programs, FollowOptions(count=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reports = train(model, context, (6, 6))
    assert [report.planned for report in reports] == [True, True]
    assert all(report.within_limit for report in reports)


class Greedy(torch.autograd.Function):
    """Saves so many bytes besides its result, as another shape or not."""

    more, shape = 0, (64, 32)

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        more = torch.zeros(Greedy.more, dtype=torch.uint8) if Greedy.more else None
        ctx.save_for_backward(y, torch.ones(64, 32).view(Greedy.shape), more)
        return y

    @staticmethod
    def backward(ctx, gradient):
        y, _, _ = ctx.saved_tensors
        return gradient * (1 - y * y)


class Saving(Layers):
    """Its second layer saves what `Greedy` says."""

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = Greedy.apply(layer(x)) if number == 1 else torch.tanh(layer(x))
        return x


def test_what_was_not_foreseen_and_does_not_fit_deviates_and_all_moves_nevertheless(monkeypatch):
    model = Saving()
    (made,) = moved(model)
    monkeypatch.setattr(Greedy, "more", 16000)
    for count in (False, True):
        context = Offload(model, [made], FollowOptions(count=count))
        with pytest.warns(OffloadWarning, match="16000 bytes more than planned are held during F:"):
            (report,) = train(model, context, [3])
        (unforeseen,) = report.unforeseen
        assert (unforeseen.size, unforeseen.dtype, unforeseen.shape) == (16000, "uint8", (16000,))
        assert not report.planned
        assert report.offloaded_bytes == sum(place.size for place in made.host.offsets)
        assert report.late_bytes == 0
        assert report.within_limit != count
    for count, said in (False, "16000 bytes"), (None, ".* alive during .*, 16000 more than the"):
        with pytest.raises(PlanError, match=f"the step takes more than its plan says: {said}"):
            train(model, Offload(model, [made], FollowOptions(strict=True, count=count)), [3])


def test_what_fits_into_the_limit_is_no_deviation(monkeypatch):
    model = Saving()
    problem = problem_of_step(mean_step(model, 64, 32))
    plan = evict_everything(problem)
    needed = predict(problem.trace, plan).peak
    monkeypatch.setattr(Greedy, "more", 16000)
    for room, fits in (15999, False), (16000, True):
        context = follow(model, plan, problem.with_memory(needed + room), FollowOptions(count=True))
        with warnings.catch_warnings():
            warnings.simplefilter("error" if fits else "ignore")
            (report,) = train(model, context, [3])
        assert report.unforeseen
        assert report.planned is fits
        assert report.within_limit or not fits


def test_as_many_bytes_of_another_shape_are_no_deviation(monkeypatch):
    model = Saving()
    problem = problem_of_step(mean_step(model, 64, 32))
    monkeypatch.setattr(Greedy, "shape", (32, 64))
    # What the first layer saves leaves; what the second one saves is looked at, too.
    first = problem.trace.gaps[0].tensor
    gaps = {number for number, gap in enumerate(problem.trace.gaps) if gap.tensor == first}
    plan = evict_everything(problem, gaps)
    needed = predict(problem.trace, plan).peak
    context = follow(
        model, plan, problem.with_memory(needed), FollowOptions(count=True, strict=True)
    )
    (report,) = train(model, context, [3])
    assert report.unforeseen
    assert report.planned
    assert report.within_limit


def test_what_somebody_else_holds_beyond_the_limit_deviates():
    model = Layers()
    (made,) = moved(model)
    kept = []
    handle = model.layers[1].register_forward_hook(lambda module, args, y: kept.append(args[0]))
    context = Offload(model, [made], FollowOptions(count=True))
    with pytest.warns(OffloadWarning, match="8192 bytes more than planned are held during"):
        (report,) = train(model, context, [3])
    handle.remove()
    assert report.unfreed
    assert not report.planned
    assert not report.within_limit
    # Without a counter, too.
    handle = model.layers[1].register_forward_hook(lambda module, args, y: kept.append(args[0]))
    with pytest.warns(OffloadWarning, match="8192 bytes more than planned are held during"):
        (report,) = train(model, Offload(model, [made], FollowOptions(count=False)), [3])
    assert report.deviation.startswith("8192 bytes more than planned")
    handle.remove()


def test_counted_bytes_above_the_limit_deviate_whatever_took_them():
    class Wide(Layers):
        width = 1

        def forward(self, x):
            with torch.no_grad():
                torch.zeros(Wide.width)
            return super().forward(x)

    model = Wide()
    programs = moved(model)
    Wide.width = 100_000
    context = Offload(model, programs, FollowOptions(count=True))
    with pytest.warns(OffloadWarning, match="bytes were alive during F:.*more than the limit"):
        (report,) = train(model, context, [3])
    assert not report.planned
    assert report.unforeseen == ()


def test_nodes_that_the_compiler_makes_are_not_the_steps():
    model = Layers()
    programs = idle(model)
    compiled = torch.compile(lambda x: x * 2 + 1, backend="aot_eager")
    model.register_forward_hook(lambda module, args, y: compiled(y))
    # One node more, of what was compiled: only in the first step it cannot be told.
    context = Offload(model, programs, FollowOptions(count=False))
    with pytest.warns(OffloadWarning, match="1 more than when it was captured"):
        reports = train(model, context, [3, 3])
    assert [report.planned for report in reports] == [True, False]
    torch._dynamo.reset()


def test_captures_of_other_devices_and_of_old_are_not_compared():
    model = Layers()
    (made,) = idle(model)
    for changes in {"nodes": ()}, {"nodes": (-1,)}, {"device": "cuda"}:
        other = replace(made, capture=replace(made.capture, **changes))
        depths = [6] if "nodes" in changes else []
        reports = train(model, Offload(model, [other], FollowOptions(count=False)), depths)
        assert all(report.planned for report in reports)


def test_nodes_are_in_problems():
    problem = problem_of_step(mean_step(Layers(), 64, 32))
    (nodes,) = problem.source["capture"]["nodes"]
    # Of each layer a transposed weight, the product and the hyperbolic tangent.
    assert nodes == 9
    assert read_capture(problem.source, problem.trace).nodes == (9,)
    del problem.source["capture"]["nodes"]
    assert read_capture(problem.source, problem.trace).nodes == ()
