"""The context manager: what it moves, what it refuses, what it reports."""

import gc
import random
from itertools import pairwise

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from offcert.core.errors import InputError, PlanError
from offcert.core.platform import Kind
from offcert.questions.placement.problem import Placement
from offcert.questions.schedule.plan import Move, Plan
from offcert.runtime.pairs.train import train
from offcert.runtime.plan import host_layout
from offcert.runtime.plan.predict import predict
from offcert.runtime.stages.replay import replay
from offcert.runtime.watch.entries import InPlaceError
from support.runtime.captured import random_plan
from support.runtime.stage_problems import evict_everything, problem_of


def sigmoids():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 2)
    )


@pytest.mark.parametrize("evict", [True, False])
def test_change_in_place_after_saving_is_an_error(evict):
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    step = replay(model, evict_everything(problem) if evict else Plan(), problem)

    # The second layer saves its input and then, behind autograd's back, its input changes.
    def change(module, inputs, output):
        inputs[0].mul_(2)

    handle = model[2].register_forward_hook(change)
    with step:
        loss = step(torch.randn(4, 8))
        assert step.report.unfreed == ()
        with pytest.raises(InPlaceError, match="4x8 saved for the backward pass was changed"):
            loss.backward()
    handle.remove()


@pytest.mark.parametrize("overlapping", [False, True])
def test_copies_share_an_arena_and_nothing_is_lost_in_one_that_overlaps(monkeypatch, overlapping):
    if overlapping:
        zeros = lambda problem: Placement([0] * len(problem.residences))  # noqa: E731
        monkeypatch.setattr(host_layout, "placed", zeros)
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    # Everything returns at once: copies are not needed at the same time.
    gaps = enumerate(problem.trace.gaps)
    pairs = [(number, gap.before + 1) for number, gap in gaps if gap.after > gap.before + 1]
    short = Plan([Move(kind, *pair) for pair in pairs for kind in (Kind.OFFLOAD, Kind.PREFETCH)])
    for plan in (short, evict_everything(problem)):
        with replay(model, plan, problem) as step:
            x = torch.randn(4, 8)
            step(x).backward()
            found = [parameter.grad.clone() for parameter in model.parameters()]
            report = step.report
        model.zero_grad()
        model(x).mean().backward()
        assert all(map(torch.equal, found, [parameter.grad for parameter in model.parameters()]))
        model.zero_grad()
        assert report.offloaded_bytes > 0
        assert report.arena_bytes >= report.arena_load or overlapping
        if plan is short:
            assert report.arena_bytes < report.offloaded_bytes
        assert bool(report.outside_entries) is (overlapping and plan is not short)


def test_parameter_changed_between_forward_and_backward_is_an_error():
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    with replay(model, Plan(), problem) as step:
        loss = step(torch.randn(4, 8))
        with torch.no_grad():
            model[2].weight.add_(1)
        with pytest.raises(InPlaceError):
            loss.backward()


def test_storage_held_by_someone_else_is_reported_and_not_moved():
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    step = replay(model, evict_everything(problem), problem)
    kept = []
    model[1].register_forward_hook(lambda module, inputs, output: kept.append(output.detach()))
    inputs = torch.randn(4, 8)
    with step:
        loss = step(inputs)
        loss.backward()
    (unfreed,) = step.report.unfreed
    assert (unfreed.tensor, unfreed.size, unfreed.operation) == ("x2", 4 * 8 * 4, "F:3")
    assert not step.report.follows_prediction
    uses = next(tensor.uses for tensor in problem.trace.tensors if tensor.name == "x2")
    assert uses == (1, 2, 9, 10)
    pairs = zip(step.report.at_end, step.report.prediction.at_end, strict=True)
    # It is there while it should be away and, for the list still holds it, after its death.
    assert [counted - predicted for counted, predicted in pairs] == [
        128 if operation in (3, 4, 5, 6, 7, 8, 10, 11) else 0 for operation in range(12)
    ]
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(inputs).mean().backward()
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        assert torch.equal(gradient, parameter.grad)


def test_nothing_keeps_entries_and_storages_alive_after_the_step():
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    step = replay(model, evict_everything(problem), problem)
    with step:
        loss = step(torch.randn(4, 8))
        # The batch and two sigmoids' results.
        assert len(list(step._meter.saved)) == 3
        del loss
        # No backward: dropping the graph frees everything, on the device or not.
        assert list(step._meter.saved) == []
        assert step._meter.tracker.live == 0


def test_a_plan_that_does_not_bring_a_tensor_back_fails_loudly():
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    step = replay(model, evict_everything(problem), problem)
    step._meter._claim = lambda entry: None
    with step:
        loss = step(torch.randn(4, 8))
        with pytest.raises(PlanError, match="has not brought it back"):
            loss.backward()


def test_another_network_than_the_planned_one_is_refused():
    problem = problem_of(sigmoids(), (4, 8))
    wider = nn.Sequential(
        nn.Linear(8, 9), nn.Sigmoid(), nn.Linear(9, 8), nn.Sigmoid(), nn.Linear(8, 2)
    )
    with pytest.raises(InputError, match="tensor x1 of the network has 144 bytes"):
        replay(wider, Plan(), problem)
    with pytest.raises(InputError, match="the network has 8 operations"):
        replay(nn.Sequential(*list(sigmoids())[2:]), Plan(), problem)


def test_a_plan_above_the_limit_is_refused():
    problem = problem_of(sigmoids(), (4, 8))
    small = problem.with_memory(problem.trace.peak_memory - 1)
    with pytest.raises(PlanError, match="1 more than the limit"):
        replay(sigmoids(), Plan(), small)


def test_labels_of_another_shape_are_refused():
    problem = problem_of(sigmoids(), (4, 8), "cross-entropy")
    with replay(sigmoids(), Plan(), problem) as step:
        with pytest.raises(InputError, match='the loss "cross-entropy" needs labels'):
            step(torch.randn(4, 8))
        with pytest.raises(InputError, match=r"the labels must be of shape \[4\]"):
            step(torch.randn(4, 8), torch.zeros(3, dtype=torch.int64))


def test_batch_of_another_shape_is_refused():
    problem = problem_of(sigmoids(), (4, 8))
    step = replay(sigmoids(), Plan(), problem)
    with step:
        with pytest.raises(InputError, match=r"the input must be of shape \[4, 8\]"):
            step(torch.randn(5, 8))
        with pytest.raises(InputError, match=r"and torch.float32, .*, not .* and torch.float64"):
            step(torch.randn(4, 8).double())
        with pytest.raises(InputError, match='the loss "mean" takes no labels'):
            step(torch.randn(4, 8), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(InputError, match="as a context"):
        step(torch.randn(4, 8))


def test_gradients_accumulate_over_two_steps():
    model, plain = sigmoids(), sigmoids()
    problem = problem_of(model, (4, 8))
    first, second = torch.randn(4, 8), torch.randn(4, 8)
    with replay(model, evict_everything(problem), problem) as step:
        step(first).backward()
        step(second).backward()
    plain(first).mean().backward()
    plain(second).mean().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_the_callers_batch_is_not_counted_nor_kept():
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    assert problem.trace.tensors[0].uses == (-1, 0, 11)
    inputs = torch.randn(4, 8)
    with replay(model, evict_everything(problem), problem) as step:
        loss = step(inputs)
        # Only the copy leaves; the caller may do with the original what he likes.
        inputs.zero_()
        loss.backward()
    assert step.report.follows_prediction
    gc.collect()
    assert functional.linear(inputs, model[0].weight).abs().sum() == 0
    assert model[0].weight.grad.abs().sum() > 0


def test_double_eviction_needs_a_host_copy_only_once_and_order_within_a_boundary_is_release_first():
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    trace = problem.trace
    # Every gap is left for one operation only, all of them through the same boundary.
    moves = []
    for number, gap in enumerate(trace.gaps):
        moves += [
            Move(Kind.OFFLOAD, number, gap.after),
            Move(Kind.PREFETCH, number, gap.after),
        ]
    report = train(problem, Plan(moves), model=model, steps=1)
    assert report.ok
    assert report.counted_begin == report.predicted_begin


def test_backward_of_an_earlier_step_is_refused():
    model = sigmoids()
    problem = problem_of(model, (4, 8))
    with replay(model, evict_everything(problem), problem) as step:
        first = step(torch.randn(4, 8))
        step(torch.randn(4, 8)).backward()
        with pytest.raises(PlanError, match="must follow its own step"):
            first.backward()


def test_second_backward_over_a_retained_graph():
    model, plain = sigmoids(), sigmoids()
    problem = problem_of(model, (4, 8))
    inputs = torch.randn(4, 8)
    with replay(model, evict_everything(problem), problem) as step:
        loss = step(inputs)
        loss.backward(retain_graph=True)
        loss.backward()
    for _ in range(2):
        plain(inputs).mean().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def blocks():
    torch.manual_seed(0)
    widths = (3, 4, 6, 5, 8, 4)
    layers = [
        nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
        for a, b in pairwise(widths)
    ]
    return nn.Sequential(*layers, nn.Dropout(0.3), nn.Flatten(), nn.Linear(4 * 64, 7))


@pytest.mark.parametrize("seed", range(6))
def test_random_plans_are_followed_to_the_byte(seed):
    problem = problem_of(blocks(), (2, 3, 8, 8), "cross-entropy")
    plan = random_plan(problem.trace, random.Random(seed))
    problem = problem.with_memory(predict(problem.trace, plan).peak)
    report = train(problem, plan, model=blocks(), steps=2, seed=seed)
    assert report.ok, report.steps
    assert report.peak <= problem.platform.memory


_switch = {"wide": True}


@fx.wrap
def _fickle(x):
    return x * torch.tanh(x) if _switch["wide"] else x * torch.tanh(x[:, :1])


class Fickle(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(torch.sigmoid(_fickle(self.first(x))))


def test_a_network_that_saves_something_else_than_when_it_was_profiled_is_refused(monkeypatch):
    problem = problem_of(Fickle(), (4, 8))
    with replay(Fickle(), evict_everything(problem), problem) as step:
        step(torch.randn(4, 8)).backward()
        assert step.report.follows_prediction
        monkeypatch.setitem(_switch, "wide", False)
        with pytest.raises(PlanError, match="is not what it was when the network was profiled"):
            step(torch.randn(4, 8)).backward()
