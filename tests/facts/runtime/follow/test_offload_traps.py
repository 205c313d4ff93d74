"""Small programs, each named for the trap that it sets to what moves saved tensors."""

import random
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError, PlanError
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.predict import predict
from offcert.runtime.streaming.synchronous import SynchronousMover
from offcert.runtime.watch.entries import InPlaceError
from support.runtime.captured import (
    compare,
    convolutions,
    evict_everything,
    evicted_bytes,
    mean_step,
    problem_of_step,
    random_plan,
)


class Apply(nn.Module):
    """A linear layer, a function, and three more layers, so that what the function saves has gaps.

    The function is called between leaf modules, so that its saves can leave before they come back.
    """

    def __init__(self, function=torch.tanh, middle=8):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(middle, 8)
        self.third, self.last = nn.Linear(8, 8), nn.Linear(8, 2)
        self.function = function

    def forward(self, x):
        x = torch.sigmoid(self.second(self.function(self.first(x))))
        return self.last(torch.sigmoid(self.third(x)))


def followed(function, middle=8, shape=(4, 8), **options):
    return compare(mean_step(Apply(function, middle), *shape), **options).require_followed()


# How tensors lie in storages.


def test_views_with_offsets_and_transposed_strides():
    followed(lambda x: x.t()[2:6].t() * x[:, 4:], middle=4)


def test_expanded_tensor_of_which_a_column_is_stored():
    followed(lambda x: x[:, :1].clone().expand(-1, 8) * torch.tanh(x))


def test_one_storage_saved_by_several_nodes_and_twice_by_one():
    def function(x):
        y = torch.exp(x)
        return y * y + torch.sigmoid(y) * y.t().contiguous().t()

    outcome = followed(function)
    rows = outcome.problem.source["capture"]["saved"]
    # The exponential's result, saved by it and by three others, the sigmoid's, and a copy.
    assert len([row for row in rows if row[0] == 1]) == 3


def test_scalars_zero_sizes_and_storages_larger_than_their_tensors():
    def function(x):
        empty = torch.exp(x[:, 8:])
        part = torch.tanh(torch.cat([x, x, x]))[4:6]
        scale = torch.sigmoid(x.mean())
        return x * scale + part.mean() * scale.exp() + empty.sum()

    followed(function)


def test_half_precision_doubles_and_booleans():
    def function(x):
        y = torch.tanh(x.double()) * 2
        z = torch.sigmoid(y.to(torch.bfloat16)).float()
        return torch.where(z > 0.5, z, y.float()) * z.masked_fill(z < 0.3, 0.0)

    outcome = followed(function)
    assert {row[2] for row in outcome.problem.source["capture"]["saved"]} >= {
        "bfloat16", "float32", "float64", "bool"
    }  # fmt: skip


def test_complex_numbers_and_their_conjugates():
    def function(x):
        spectrum = torch.fft.fft(x)
        return torch.real(spectrum * spectrum.conj()) + torch.view_as_real(spectrum.exp()).sum(-1)

    outcome = compare(mean_step(Apply(function), 4, 8))
    assert all(report.planned for report in outcome.reports)


def test_one_storage_seen_as_two_types():
    followed(lambda x: torch.tanh(x) * (x.view(torch.int32) >> 31).float())


def test_sparse_and_nested_tensors_stay_where_they_are():
    def function(x):
        sparse = torch.relu(x).to_sparse()
        return torch.sparse.mm(sparse, torch.tanh(x).t()) @ torch.sigmoid(x)

    outcome = compare(mean_step(Apply(function), 4, 8), tensors="real")
    assert all(report.offloaded_bytes > 0 for report in outcome.reports)


def test_weights_in_any_view_stay_where_they_are():
    class Viewed(Apply):
        def forward(self, x):
            weight = self.third.weight
            y = torch.tanh(x @ weight.t() + x @ weight[:, :8] + weight.view(-1)[:8])
            return super().forward(y * self.last.weight[0])

    outcome = compare(mean_step(Viewed(), 4, 8)).require_followed()
    shapes = {tuple(row[3]) for row in outcome.problem.source["capture"]["saved"]}
    assert (8, 8) not in shapes


def test_computed_weights_move():
    model = Apply()
    nn.utils.parametrizations.weight_norm(model.second)
    nn.utils.parametrizations.spectral_norm(model.third)
    outcome = compare(mean_step(model, 4, 8))
    for report in outcome.reports:
        assert report.planned, report.deviation
        assert report.offloaded_bytes > 0


def test_transforms_of_functions():
    def function(x):
        return torch.vmap(lambda row: torch.tanh(row) * row.sum())(x)

    followed(function)


# Custom functions.


class DoubleTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x) * 2
        ctx.save_for_backward(x, y, None)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y, nothing = ctx.saved_tensors
        assert nothing is None
        return gradient * (2 - y * y / 2) + 0 * x


class Hoarder(torch.autograd.Function):
    """Keeps its result in a way of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.kept = torch.tanh(x)
        return ctx.kept.view_as(ctx.kept)

    @staticmethod
    def backward(ctx, gradient):
        kept, ctx.kept = ctx.kept, None
        return gradient * (1 - kept * kept)


class ShapeOnly(torch.autograd.Function):
    """Asks for what it has saved, but reads no more than its shape."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.mean().expand_as(x).clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return (gradient.sum() / x.numel()).expand(x.shape)


class Unmoved(torch.autograd.Function):
    """Saves, but never asks for it: autograd releases it unseen."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.exp(x))
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Scribbler(torch.autograd.Function):
    """Its backward changes what it has saved, openly or behind autograd's back."""

    secret = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        (x.data if Scribbler.secret else x).mul_(0.5)
        return gradient * 2


@pytest.mark.parametrize("function", [DoubleTanh, ShapeOnly, Unmoved])
def test_custom_functions(function):
    followed(lambda x: function.apply(torch.sigmoid(x)))


def test_what_a_custom_function_keeps_in_its_own_way_cannot_leave():
    outcome = followed(lambda x: Hoarder.apply(x))
    kept = [row for row in outcome.problem.source["capture"]["saved"] if row[0] == 1]
    # The next layer saves it too, but it is held until the function's own backward.
    assert all(tensor is None or not _has_gap(outcome.problem.trace, tensor) for *_, tensor in kept)


def _has_gap(trace, tensor):
    return any(gap.tensor == tensor for gap in trace.gaps)


def test_backward_that_changes_what_was_saved_is_an_error_as_in_plain_training():
    # The sigmoid's backward needs its result after the function's backward has changed it.
    step = mean_step(Apply(lambda x: Scribbler.apply(torch.sigmoid(x))), 4, 8)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step.run(step.model, torch.ones(4, 8)).backward()
    harmless = mean_step(Apply(lambda x: DoubleTanh.apply(torch.sigmoid(x))), 4, 8)
    problem = problem_of_step(harmless)
    with follow(step.model, evict_everything(problem), problem) as made:
        loss = step.run(step.model, torch.ones(4, 8))
        with pytest.raises(InPlaceError, match="4x8 saved for the backward pass was changed"):
            loss.backward()
    assert made.report.offloaded_bytes > 0


def test_backward_that_changes_what_was_saved_behind_autograds_back(monkeypatch):
    # What plain training makes of it is wrong, but what is wrong is the same.
    monkeypatch.setattr(Scribbler, "secret", True)

    class Two(nn.Module):
        """Between the two backward passes that use one storage lie those of other modules."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

        def forward(self, x):
            x = torch.sigmoid(self.layers[0](x))
            y = self.layers[3](torch.tanh(self.layers[2](torch.tanh(self.layers[1](x)))))
            return self.layers[5](torch.tanh(self.layers[4](y * Scribbler.apply(x))))

    outcome = compare(mean_step(Two(), 4, 8), tensors="real", count=False)
    expected = evicted_bytes(outcome.problem, outcome.plan)
    for report in outcome.reports:
        assert report.planned, report.deviation
        # What had been changed was copied once more.
        assert report.offloaded_bytes > expected


# Changes in place.


@pytest.mark.parametrize("evict", [True, False])
def test_change_in_place_after_saving_is_an_error(evict):
    model = Apply()
    problem = problem_of_step(mean_step(model, 4, 8))
    plan = evict_everything(problem) if evict else Plan()

    def change(module, inputs, output):
        inputs[0].mul_(2)

    handle = model.second.register_forward_hook(change)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        model(torch.randn(4, 8)).square().mean().backward()
    with follow(model, plan, problem, FollowOptions(count=True)) as made:
        loss = model(torch.randn(4, 8)).square().mean()
        with pytest.raises(RuntimeError, match=r"in place|inplace"):
            loss.backward()
    handle.remove()
    assert made.report.unfreed == ()


def test_change_in_place_of_what_is_held_is_an_error_after_it_should_have_left():
    class Held(Apply):
        def forward(self, x):
            y = torch.tanh(self.first(x))
            z = self.third(torch.sigmoid(self.second(y)))
            y.mul_(2)
            return self.last(torch.sigmoid(z)) + y.sum()

    model = Held()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        model(torch.randn(4, 8)).square().mean().backward()
    problem = problem_of_step(mean_step(Apply(), 4, 8))
    with follow(model, evict_everything(problem), problem) as made:
        loss = model(torch.randn(4, 8)).square().mean()
        with pytest.raises(InPlaceError):
            loss.backward()
        assert [each.tensor for each in made.report.unfreed] == ["x:after first"]


def test_parameter_changed_between_forward_and_backward_is_an_error():
    model = Apply()
    problem = problem_of_step(mean_step(model, 4, 8))
    with follow(model, evict_everything(problem), problem):
        loss = model(torch.randn(4, 8)).square().mean()
        with torch.no_grad():
            model.third.weight.add_(1)
        with pytest.raises(InPlaceError, match="8x8 saved for the backward pass was changed"):
            loss.backward()


def test_in_place_operators_that_are_allowed():
    def function(x):
        y = x.clone()
        y[:, :4] = torch.tanh(x[:, 4:])
        y.add_(1).clamp_(-2, 2)
        y = torch.relu_(y * x)
        z = torch.sin(y).mul_(2)
        return z.add_(y)

    followed(function)


# Who holds what.


def test_output_that_is_saved_and_held_by_the_caller():
    class Ends(Apply):
        def forward(self, x):
            return torch.sigmoid(super().forward(x))

    step = TrainingStep(
        Ends(), lambda model, x: (model(x) * torch.arange(2.0)).mean(), lambda: torch.randn(4, 8)
    )
    outputs = []

    def loop(model, batch, optimiser):
        output = model(batch)
        outputs.append(output)
        (output * torch.arange(2.0)).mean().backward()
        return output.detach().clone()

    outcome = compare(step, loop, count=False)
    for report in outcome.reports:
        assert report.planned, report.deviation
        assert report.offloaded_bytes > 0


def test_tensors_that_the_program_holds_are_reported_and_not_moved():
    step = mean_step(Apply(), 4, 8)
    kept = []

    def prepare(model):
        model.second.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[0]))

    outcome = compare(step, prepare=prepare)
    expected = evicted_bytes(outcome.problem, outcome.plan)
    for report in outcome.reports:
        (unfreed,) = report.unfreed
        assert (unfreed.tensor, unfreed.size) == ("x:after first", 4 * 8 * 4)
        assert unfreed.operation == "F:third"
        assert report.offloaded_bytes == expected - unfreed.size
        assert report.planned
        assert not report.follows_prediction
    assert len(kept) == 6


@pytest.mark.parametrize("kind", ["storage", "numpy", "view"])
def test_storages_held_in_other_ways(kind):
    kept = []

    def keep(module, inputs):
        x = inputs[0].detach()
        kept.append({"storage": x.untyped_storage(), "numpy": x.numpy(), "view": x[0]}[kind])

    def prepare(model):
        model.second.register_forward_pre_hook(keep)

    outcome = compare(mean_step(Apply(), 4, 8), prepare=prepare, count=False)
    expected = evicted_bytes(outcome.problem, outcome.plan)
    for report in outcome.reports:
        (unfreed,) = report.unfreed
        assert unfreed.tensor == "x:after first"
        # Whoever holds it may change it: it is not copied, let alone dropped.
        assert report.offloaded_bytes == expected - unfreed.size


def test_the_callers_batch_is_neither_counted_nor_moved_nor_kept():
    model = Apply()
    problem = problem_of_step(mean_step(model, 4, 8))
    inputs = torch.randn(4, 8)
    reference = weakref.ref(inputs.untyped_storage())
    with follow(model, evict_everything(problem), problem, FollowOptions(count=True)) as made:
        loss = model(inputs).square().mean()
        del inputs
        assert reference() is not None
        loss.backward()
        assert reference() is None
    assert made.report.follows_prediction


def test_graph_that_is_dropped_without_a_backward_pass():
    model = Apply()
    problem = problem_of_step(mean_step(model, 4, 8))
    with follow(model, evict_everything(problem), problem, FollowOptions(count=True)) as made:
        loss = model(torch.randn(4, 8)).square().mean()
        run = made.follower.run
        entries = [run.entry(place) for place in run._entries.by_place]
        assert len(entries) == 4
        assert any(entry.away for entry in entries)
        del entries
        del loss
        assert [run.entry(place) for place in run._entries.by_place] == [None] * 4
        assert made.follower.run.counter.live == 0
        model(torch.randn(4, 8)).square().mean().backward()
        assert made.report.follows_prediction


def test_addresses_that_are_used_again():
    class Churning(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))

        def forward(self, x):
            for layer in self.layers:
                # Each result dies as soon as it has been offloaded; the next one lies there.
                x = torch.tanh(layer(x))
                del layer
            return x

    outcome = compare(mean_step(Churning(), 4, 8), steps=2)
    outcome.require_followed()


# Plans.


def test_leaving_twice_copies_once():
    class Reused(nn.Module):
        """One storage is used by two modules' backward passes, with a module between them."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

        def forward(self, x):
            x = torch.sigmoid(self.layers[0](x))
            y = torch.tanh(self.layers[2](torch.tanh(self.layers[1](x))))
            return self.layers[4](torch.tanh(self.layers[3](y * x)))

    outcome = compare(mean_step(Reused(), 4, 8)).require_followed()
    twice = [
        tensor
        for tensor in range(len(outcome.problem.trace.tensors))
        if len([gap for gap in outcome.problem.trace.gaps if gap.tensor == tensor]) > 1
    ]
    assert twice
    for report in outcome.reports:
        assert report.prefetched_bytes > report.offloaded_bytes


@pytest.mark.parametrize("clock", ["modules", "operators"])
@pytest.mark.parametrize("seed", range(6))
def test_random_plans_are_followed_to_the_byte(seed, clock):
    step = mean_step(convolutions(), 2, 3, 8, 8)
    generator = random.Random(seed)

    outcome = compare(step, clock=clock, plan=lambda p: random_plan(p.trace, generator), steps=2)
    outcome.require_followed()
    peak = predict(outcome.problem.trace, outcome.plan).peak
    assert all(0 < report.peak <= peak for report in outcome.reports)


def test_plans_above_the_limit_and_without_a_capture_are_refused():
    model = Apply()
    problem = problem_of_step(mean_step(model, 4, 8))
    small = problem.with_memory(problem.trace.peak_memory - 1)
    with pytest.raises(PlanError, match="1 more than the limit"):
        follow(model, Plan(), small)
    with pytest.raises(InputError, match="problem must be given"):
        follow(model, Plan())
    with pytest.raises(InputError, match="which training cannot follow"):
        follow(model, Plan(), replace(problem, source={"clock": "stages"}))
    source = {**problem.source, "capture": {**problem.source["capture"]}}
    source["capture"]["ticks"] = [source["capture"]["ticks"][0]] * len(problem.trace)
    with pytest.raises(InputError, match="operations 0 and 1 begin with the same event"):
        follow(model, Plan(), replace(problem, source=source))


def test_a_plan_that_does_not_bring_a_tensor_back_in_time_is_late_and_says_so(monkeypatch):
    class Late(SynchronousMover):
        def _fetch(self, step, entry):
            if self.late_bytes:
                super()._fetch(step, entry)

    monkeypatch.setattr("offcert.runtime.streaming.mover_makers.SynchronousMover", Late)
    with pytest.warns(OffloadWarning, match="were needed before the plan brought them back"):
        outcome = compare(mean_step(Apply(), 4, 8))
    for report in outcome.reports:
        assert report.late_bytes > 0
        assert "bytes were needed before" in report.deviation


# More than was foreseen.


class Greedy(torch.autograd.Function):
    """Saves more where it is told to: as another device's kernel may."""

    more = False

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y, torch.zeros(x.shape[0], 1000) if Greedy.more else None)
        return y

    @staticmethod
    def backward(ctx, gradient):
        y, _ = ctx.saved_tensors
        return gradient * (1 - y * y)


def test_more_saved_than_foreseen_deviates_and_is_a_breach_of_the_limit(monkeypatch):
    model = Apply(lambda x: Greedy.apply(x))
    problem = problem_of_step(mean_step(model, 4, 8))
    plan = evict_everything(problem)
    problem = problem.with_memory(predict(problem.trace, plan).peak)
    said = pytest.warns(OffloadWarning, match="16000 bytes more than planned are held")
    with said, follow(model, plan, problem, FollowOptions(count=True)) as made:
        model(torch.randn(4, 8)).square().mean().backward()
        assert made.report.within_limit
        assert made.report.follows_prediction
        monkeypatch.setattr(Greedy, "more", True)
        model(torch.randn(4, 8)).square().mean().backward()
        report = made.report
    (unforeseen,) = report.unforeseen
    assert (unforeseen.size, unforeseen.dtype, unforeseen.shape) == (16000, "float32", (4, 1000))
    assert unforeseen.operation == "F:after first"
    assert not report.planned
    assert not report.within_limit
    assert not report.follows_prediction
    assert report.peak > report.limit + 15000
    assert report.offloaded_bytes == evicted_bytes(problem, plan)


def test_less_saved_than_foreseen_is_a_deviation():
    class Fickle(torch.autograd.Function):
        wide = True

        @staticmethod
        def forward(ctx, x):
            y = torch.tanh(x)
            ctx.wide = Fickle.wide
            ctx.save_for_backward(y if Fickle.wide else y.to(torch.bfloat16))
            return y * 2

        @staticmethod
        def backward(ctx, gradient):
            (y,) = ctx.saved_tensors
            return gradient * y.float()

    def loop(model, batch, optimiser):
        Fickle.wide = loop.turn % 3 != 1
        loop.turn += 1
        model.zero_grad()
        model(batch).square().mean().backward()

    loop.turn = 0
    with pytest.warns(OffloadWarning, match="F:after first has not saved the float32 tensor of"):
        outcome = compare(mean_step(Apply(lambda x: Fickle.apply(x)), 4, 8), loop)
    assert [report.planned for report in outcome.reports] == [True, False, True]
    assert outcome.reports[1].unforeseen
