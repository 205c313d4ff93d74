"""Small programs, each named for the trap that it sets to segments that run again."""

import copy
import gc
import pickle
import random
import weakref

import numpy
import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.segments.alone import segmented
from offcert.runtime.segments.placed import Kept
from offcert.runtime.watch.entries import InPlaceError
from offcert.runtime.watch.guard import OffloadWarning
from support.runtime.captured import _train, mean_step, require_same, standard_loop
from support.runtime.joint_training import Unwatched, again, compare_joint, segment


class Block(nn.Module):
    """Two linear layers around a function; by default with dropout and batch norm."""

    def __init__(self, function=None, width=8):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.drop = nn.BatchNorm1d(width), nn.Dropout(0.4)
        self.function = function

    def forward(self, x):
        y = self.first(x)
        y = self.drop(self.norm(y)).relu() if self.function is None else self.function(y)
        return self.second(y) + x


class Three(nn.Module):
    """Three blocks one after another."""

    def __init__(self, *functions):
        super().__init__()
        torch.manual_seed(0)
        functions = functions or (None, None, None)
        self.blocks = nn.Sequential(*map(Block, functions))

    def forward(self, x):
        return self.blocks(x)


BLOCKS = again("blocks.0", "blocks.1", "blocks.2")
KEEPING = again(*(segment(f"blocks.{n}", f"blocks.{n}.first") for n in range(3)))


def same_training(step, placed, loop=None, steps=3, prepare=None, calls=1, offloading=True):
    """Train plainly, with recomputation alone, and by a joint plan; all must be the same."""
    loop = loop or standard_loop(step)
    plain, segments = copy.deepcopy(step.model), copy.deepcopy(step.model)
    expected = list(_train(plain, step, loop, steps, None, prepare))
    with segmented(segments, placed, calls=calls):
        found = list(_train(segments, step, loop, steps, None, prepare))
    for theirs, ours in zip(expected, found, strict=True):
        require_same(theirs, ours)
    if offloading:
        return compare_joint(step, placed, loop=loop, steps=steps, prepare=prepare)
    return None


@pytest.mark.parametrize("placed", [BLOCKS, KEEPING], ids=["blocks", "keeping"])
def test_dropout_and_batch_norm(placed):
    same_training(mean_step(Three(), 6, 8), placed).require_followed()


class Once(nn.Module):
    """Raises when it runs again, which only a file says."""

    def __init__(self, file):
        super().__init__()
        self.linear, self.file = nn.Linear(8, 8), str(file)

    def forward(self, x):
        y = self.linear(x)
        with open(self.file, "a+b", buffering=0) as file:
            if file.tell():
                raise RuntimeError("once is enough")
            file.write(b".")
        return y.tanh()


def test_segments_in_each_other_that_fail_when_they_run_again(tmp_path):
    # The inner one saves what it is given: its rehearsal asks the outer one for that once more.
    model = chain(nn.Linear(8, 8), chain(nn.Tanh(), Once(tmp_path / "ran")), nn.Linear(8, 8))
    plain, x = copy.deepcopy(model), torch.randn(4, 8)
    plain(x).sum().backward()
    (tmp_path / "ran").unlink()
    with segmented(model, again(segment("1", inner=(segment("1.1"),)))):
        loss = model(x).sum()
        with pytest.warns(OffloadWarning, match="once is enough"):
            loss.backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


# What is changed in place.


def test_relu_in_place_within_a_segment():
    same_training(mean_step(Three(*[lambda y: y.relu_()] * 3), 6, 8), BLOCKS).require_followed()


def chain(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers)


def test_relu_in_place_on_what_a_segment_returns():
    model = chain(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 8))
    placed = again(segment("", children=("0", "1")))
    same_training(mean_step(model, 6, 8), placed).require_followed()


def test_relu_in_place_on_what_a_segment_is_given():
    model = chain(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.Tanh())
    placed = again(segment("", children=("1", "2")))
    message = "children 1 to 2 of the model cannot run again: what it is given is changed in place"
    with pytest.warns(OffloadWarning, match=message):
        same_training(mean_step(model, 6, 8), placed, offloading=False)
    with pytest.raises(InPlaceError, match=message):
        capture(mean_step(model, 6, 8), program=placed)


def test_kept_result_that_is_changed_in_place_is_kept_together_with_that():
    model = chain(nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8))
    together = again(segment("", "1", "2", children=("0", "3")))
    same_training(mean_step(model, 6, 8), together).require_followed()
    alone = again(segment("", "1", children=("0", "3")))
    with segmented(model, alone), pytest.raises(InputError, match="only be kept together"):
        model(torch.randn(4, 8))


def test_kept_result_that_is_read_before_it_is_changed_in_place():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.act, self.side = nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Tanh()

        def forward(self, x):
            y = self.first(x)
            side = self.side(y * 2)
            return self.act(y) * side

    model = nn.Sequential(nn.Linear(8, 8), Reads())
    placed = again(segment("1", "1.first", "1.act"))
    with segmented(model, placed), pytest.raises(InputError, match="only be kept together"):
        model(torch.randn(4, 8))


# What is used how often.


def test_output_used_twice_and_by_the_segment_itself():
    class Twice(Three):
        def forward(self, x):
            y = self.blocks[0](x)
            return self.blocks[1](y) * y + self.blocks[2](y).exp()

    same_training(mean_step(Twice(), 6, 8), KEEPING).require_followed()


def test_module_called_several_times_only_one_call_of_which_runs_again():
    class Shared(Three):
        def forward(self, x):
            for _ in range(3):
                x = self.blocks[0](x)
            return x

    placed = again(segment("blocks.0", Kept("enter", "blocks.0.second", 1), call=1))
    outcome = same_training(mean_step(Shared(), 6, 8), placed)
    assert outcome.carried.execution.repeated > 0
    outcome.require_followed()


class Several(nn.Module):
    """Several outputs, one of which nobody needs, in a dictionary; inputs of any kind."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, pair, *, scale, other=None, flag=True):
        x, y = pair
        assert flag
        assert other is None or x is other["again"]
        unused = self.second(x).sigmoid()
        return {"sum": [self.first(x).tanh() * scale, y], "unused": unused.exp()}


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.several = Several()
        self.last = nn.Linear(8, 8)

    def forward(self, x):
        x = self.last(x)
        out = self.several((x, x.cos()), scale=x.sum(), other={"again": x, "none": None})
        return self.last(out["sum"][0] * out["sum"][1])


def test_output_that_nobody_needs_and_arguments_of_any_kind():
    outcome = same_training(mean_step(Calls(), 6, 8), again("several"))
    # Without recomputation, autograd holds on to what led to the output that nobody needs.
    outcome.require_followed(exactly=False)


def test_tensors_that_need_no_gradient_and_none_that_does():
    class Frozen(Three):
        def forward(self, x):
            mask = self.blocks[0](x).detach()
            return self.blocks[2](self.blocks[1](x) * (mask > 0))

    model = Frozen()
    for parameter in model.blocks[1].parameters():
        parameter.requires_grad_(False)
    same_training(mean_step(model, 6, 8), BLOCKS, offloading=False)


# Random numbers.


def test_kept_dropout_before_one_that_runs_again():
    model = chain(nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Tanh())
    placed = again(segment("", "0", children=("0", "3")))
    same_training(mean_step(model, 6, 8), placed).require_followed()


def test_random_numbers_of_python_and_numpy():
    def function(y):
        return y * random.random() + float(numpy.random.rand())

    same_training(mean_step(Three(function, None, function), 6, 8), BLOCKS, offloading=False)


# What modules remember.


class Counting(nn.Module):
    """Changes a buffer by what it is, replaces another, and counts its calls."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0
        self.register_buffer("scale", torch.ones(8))
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("large", torch.ones(2**16))

    def forward(self, x):
        self.calls += 1
        self.steps = self.steps + 1
        self.scale.mul_(1.1)
        self.large.add_(x.detach().mean())
        self.latest = self.linear(x * self.scale).tanh() * self.large.mean()
        return self.latest * self.calls


def test_buffers_and_attributes_that_change():
    model = chain(nn.Linear(8, 8), Counting(), nn.Linear(8, 8))
    same_training(mean_step(model, 6, 8), again("1"), offloading=False)


def test_statistics_that_kernels_change_without_a_trace():
    class Statistics(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("variance", torch.ones(8))

        def forward(self, x):
            return nn.functional.batch_norm(x, self.mean, self.variance, training=True).relu()

    model = chain(nn.Linear(8, 8), Statistics(), nn.Linear(8, 8))
    same_training(mean_step(model, 6, 8), again("1"), offloading=False)


def test_spectral_norm():
    torch.manual_seed(0)
    inner = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(inner, nn.Tanh()), nn.Linear(8, 8))
    same_training(mean_step(model, 6, 8), again("1"), offloading=False)


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.InstanceNorm1d])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_are_updated_once(kind, momentum):
    norm = kind(8, momentum=momentum or 0.1, track_running_stats=True)
    norm.momentum = momentum if kind is nn.BatchNorm1d else norm.momentum
    model = chain(nn.Linear(8, 8), norm, nn.Tanh())
    placed = again(segment("", children=("0", "2")))
    step = TrainingStep(model, lambda m, x: m(x).square().mean(), lambda: torch.randn(3, 8, 8))
    same_training(step, placed, offloading=False)


def test_evaluation_between_forward_and_backward():
    step = mean_step(Three(), 6, 8)

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        loss = step.run(model, batch)
        model.eval()
        with torch.no_grad():
            found = model(batch).sum()
        loss.backward()
        model.train()
        optimiser.step()
        return loss.detach(), found

    same_training(step, BLOCKS, loop, offloading=False)


def test_evaluation_mode_and_no_grad():
    model = Three()
    model.eval()
    expected = model(torch.ones(4, 8))
    with segmented(model, BLOCKS):
        assert torch.equal(model(torch.ones(4, 8)), expected)
        with torch.no_grad():
            assert torch.equal(model(torch.ones(4, 8)), expected)
    same_training(mean_step(model, 6, 8), BLOCKS, offloading=False)


def test_no_grad_within_the_forward_pass():
    class Target(Three):
        def forward(self, x):
            with torch.no_grad():
                target = self.blocks[0](x)
            return self.blocks[2](self.blocks[0](x) + target)

    placed = again(segment("blocks.0", call=1), "blocks.2")
    same_training(mean_step(Target(), 6, 8), placed, offloading=False)


# Backward passes.


def losses(step, run):
    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        result = run(model, batch)
        optimiser.step()
        return result.detach()

    return loop


@pytest.mark.parametrize("placed", [BLOCKS, KEEPING], ids=["blocks", "keeping"])
def test_retained_graph(placed):
    def run(model, x):
        loss = model(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    step = mean_step(Three(), 6, 8)
    same_training(step, placed, losses(step, run), offloading=False)


@pytest.mark.parametrize("placed", [BLOCKS, KEEPING], ids=["blocks", "keeping"])
def test_two_losses_that_share_a_segment_one_after_the_other(placed):
    class Heads(Three):
        def forward(self, x):
            y = self.blocks[0](x)
            return self.blocks[1](y.detach()), y.exp()

    def run(model, x):
        first, second = model(x)
        first.sum().backward()
        second.mean().backward()
        return second.mean()

    step = mean_step(Heads(), 6, 8)
    same_training(step, placed, losses(step, run), offloading=False)


def test_parts_of_a_segment_freed_one_backward_pass_after_the_other():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.left(x).tanh(), self.right(x).sigmoid()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.halves = Halves()

        def forward(self, x):
            return self.halves(x)

    def run(model, x):
        left, right = model(x)
        left.sum().backward()
        right.sum().backward()
        return right.sum()

    step = mean_step(Model(), 6, 8)
    for placed in (again("halves"), again(segment("halves", "halves.left", "halves.right"))):
        same_training(step, placed, losses(step, run), offloading=False)


def test_second_derivatives():
    def run(model, x):
        x = x.requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = gradient.square().sum()
        loss.backward()
        return loss

    model = Three(*[torch.tanh] * 3)
    step = mean_step(model, 6, 8)
    same_training(step, BLOCKS, losses(step, run), offloading=False)


def test_gradient_computed_within_a_segment():
    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                energy = self.linear(x).tanh().square().sum()
                (force,) = torch.autograd.grad(energy, x, create_graph=True)
            return force * self.linear(x)

    model = chain(nn.Linear(8, 8), Energy(), nn.Linear(8, 8))
    same_training(mean_step(model, 6, 8), again("1"), offloading=False)


# Autocast, hooks, copies.


def test_autocast():
    def run(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    step = TrainingStep(Three(), run, lambda: torch.randn(6, 8))
    for placed in (BLOCKS, KEEPING):
        same_training(step, placed)


def test_weights_cast_before_the_segment_and_again_in_it():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner = nn.Linear(8, 8)
            self.block = nn.Sequential(self.inner, nn.Linear(8, 8), nn.Tanh())

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.block(self.inner(x)).float()

    model = Shared()
    kept = segment("block", Kept("enter", "inner", 1), Kept("enter", "block.1"))
    for placed in (again("block"), again(kept)):
        same_training(mean_step(model, 6, 8), placed, offloading=False)


def test_hooks_of_the_user_are_called_again_as_by_pytorchs_checkpointing():
    calls = Unwatched()
    model = Three()
    hooks = [
        model.blocks[1].register_forward_hook(lambda *_: calls.append("block")),
        model.blocks[1].first.register_forward_pre_hook(lambda *_: calls.append("first")),
        model.blocks[1].second.register_full_backward_hook(lambda *_: calls.append("gradient")),
    ]
    with segmented(model, again("blocks.1")):
        model(torch.randn(4, 8)).sum().backward()
    for hook in hooks:
        hook.remove()
    # The last layer saves its input before it runs: the hook of the block is not reached again.
    assert calls == ["first", "block", "first", "gradient"]


def test_copies_and_pickles_of_the_model_are_plain():
    model = Three()
    before = {name: set(module.__dict__) for name, module in model.named_modules()}
    with segmented(model, again(segment("blocks", children=("0", "1")), "blocks.2")):
        twin, loaded = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        for other in (twin, loaded):
            assert torch.equal(other.eval()(torch.ones(2, 8)), model.eval()(torch.ones(2, 8)))
            assert other.blocks[2]._call_impl.__self__ is other.blocks[2]
        model.train()
    assert {name: set(module.__dict__) for name, module in model.named_modules()} == before


# Exceptions.


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.fails_at = set()
        self.runs = Unwatched()

    def forward(self, x):
        self.runs.append(1)
        if len(self.runs) in self.fails_at:
            raise RuntimeError("as wanted")
        return self.linear(x).tanh()


@pytest.mark.parametrize("run", [1, 4])
def test_exception_in_the_first_run_or_when_it_runs_again(run):
    model = chain(nn.Linear(8, 8), Fails(), nn.Linear(8, 8))
    plain = copy.deepcopy(model)
    x = torch.randn(4, 8)
    with segmented(model, again("1")):
        model[1].fails_at = {run}
        if run > 1:
            # In the first step the segment proves itself.
            model(x).sum().backward()
        with pytest.raises(RuntimeError, match="as wanted"):
            model(x).sum().backward()
        model.zero_grad()
        model(x).sum().backward()
    plain(x).sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    assert "_call_impl" not in model[1].__dict__
    assert not model[1]._forward_hooks
    assert not model[1]._forward_pre_hooks


def test_exception_when_it_runs_again_for_the_first_time():
    model = chain(nn.Linear(8, 8), Fails(), nn.Linear(8, 8))
    plain = copy.deepcopy(model)
    model[1].fails_at = {2}
    x = torch.randn(4, 8)
    with segmented(model, again("1")):
        with pytest.warns(OffloadWarning, match="1 does not run again"):
            model(x).sum().backward()
        model(x).sum().backward()
    assert len(model[1].runs) == 3
    for _ in range(2):
        plain(x).sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_nothing_lives_on_after_the_backward_pass():
    model = Three()
    seen = Unwatched()

    def remember(module, args, output):
        seen.append(weakref.ref(output.untyped_storage()))

    model.blocks[0].first.register_forward_hook(remember)
    gc.disable()
    try:
        with segmented(model, KEEPING):
            model(torch.randn(4, 8)).sum().backward()
            assert len(seen) == 2
            assert all(storage() is None for storage in seen)
    finally:
        gc.enable()
