"""How tensors lie in storages, are evicted twice, and change in place: on streams."""

import pytest
import torch
from torch import nn

from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.watch.entries import InPlaceError
from support.runtime.captured import evicted_bytes
from support.runtime.stream_steps import (
    Layers,
    On,
    captured_problem,
    context,
    evicting,
    followed,
    gradients,
    mean,
    same,
    tight,
)

# How tensors lie in storages.


def _views(x):
    return x.t()[2:6].t().repeat(1, 2) * torch.tanh(x)


def _expanded(x):
    return x[:, :1].clone().expand(-1, 8) * torch.tanh(x)


def _not_contiguous(x):
    y = torch.exp(-x)
    return (y * y + torch.sigmoid(y) * y.t().contiguous().t()).t().contiguous().t()


def _larger_than_its_tensor_and_empty(x):
    empty = torch.exp(x[:, 8:])
    part = torch.tanh(torch.cat([x, x, x]))[4:6]
    return x * torch.sigmoid(x.mean()) + part.mean() + empty.sum()


def _other_types(x):
    y = torch.tanh(x.double())
    return torch.where(y > 0.2, y, y * y).float().masked_fill(x < 0.1, 0.0)


@pytest.mark.parametrize(
    "function",
    [_views, _expanded, _not_contiguous, _larger_than_its_tensor_and_empty, _other_types],
)
def test_views_and_storages(on, function):
    followed(on, Layers(5, function))


class Pair(torch.autograd.Function):
    """Saves two storages that live and die together, and one of no bytes."""

    @staticmethod
    def forward(ctx, x):
        y, z = torch.tanh(x), torch.exp(-x)
        ctx.save_for_backward(y, z, x.new_empty(0))
        return y * z

    @staticmethod
    def backward(ctx, gradient):
        y, z, _ = ctx.saved_tensors
        return gradient * ((1 - y * y) * z - y * z)


def test_tensors_of_several_storages(on):
    made, _ = followed(on, Layers(5, Pair.apply), steps=2)
    places = made.step_plans[0].parts.values()
    assert max(map(len, places)) > 1


def test_the_clock_of_operators():
    # Operators are captured on the CPU; on CUDA others may be called.
    followed(On("simulated"), Layers(5, _not_contiguous), clock="operators")


# Second evictions, and changes in place.


class Reused(nn.Module):
    """One storage is used by the backward passes of two modules, with another one between them."""

    def __init__(self, between=lambda x: x):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
        self.between = between

    def forward(self, x):
        x = torch.sigmoid(self.layers[0](x))
        y = torch.tanh(self.layers[2](torch.tanh(self.layers[1](x))))
        return self.layers[4](torch.tanh(self.layers[3](y * self.between(x))))


def test_a_second_eviction_of_an_unchanged_tensor_is_free(on):
    made, _ = followed(on, Reused(), steps=2)
    report = made.report
    assert report.prefetched_bytes > report.offloaded_bytes
    assert report.offloaded_bytes == evicted_bytes(
        made.step_plans[0].problem, evicting(made.step_plans[0].problem)
    )


class Harmless(torch.autograd.Function):
    """Saves what it is given, and asks for it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        assert x.shape == gradient.shape
        return gradient * 2


class Scribbler(Harmless):
    """Its backward changes what it has saved."""

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        x.mul_(0.5)
        return gradient * 2


def test_a_second_eviction_of_a_changed_tensor_copies_it_again(on):
    # What is captured changes nothing; what is trained does, as if its values had told it to.
    problem = captured_problem(Reused(Harmless.apply))
    model = on.put(Reused(Scribbler.apply))
    plan = evicting(problem)
    device = on.device(problem)
    with follow(model, plan, tight(problem, plan), FollowOptions(device=device)) as made:
        loss = mean(model, on.randn(4, 8))
        before = made.report.offloaded_bytes
        # As in plain training: what was changed is needed once more.
        with pytest.raises(InPlaceError, match="was changed in place"):
            loss.backward()
        assert made.report.offloaded_bytes > before
        del loss
    on.settled(device)


def test_a_tensor_changed_in_place_after_its_copy_was_handed_over(on):
    model = Layers()
    made, device = context(on, model, room=4096)

    def change(module, inputs, output):
        inputs[0].mul_(2)

    with made:
        handle = model.layers[3].register_forward_hook(change)
        loss = mean(model, on.randn(4, 8))
        assert made.report.offloaded_bytes > 0
        with pytest.raises(InPlaceError, match="was changed in place"):
            loss.backward()
        handle.remove()
        del loss
        gradients(on, model)
        assert made.report.planned
    on.settled(device)


class Unneeded(torch.autograd.Function):
    """Saves what it is given, and never asks for it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_what_changes_between_the_copy_and_the_release_is_copied_again(on):
    held = []

    def function(x):
        y = x * 1
        held.append(y.detach())
        return Unneeded.apply(y)

    model = Layers(6, function)
    changes = [False]

    def change(module, inputs, output):
        # It is no use to autograd, but nobody can know that.
        y = held.pop()
        if changes[0]:
            y.add_(1)

    # Before the capture: a program that holds on to it is another one.
    model.layers[5].register_forward_hook(change)
    made, device = context(on, model, room=4096)
    with made:
        expected = gradients(on, model)
        before = made.report.offloaded_bytes
        changes[0] = True
        assert same(gradients(on, model), expected)
        assert made.report.offloaded_bytes == before + 128
        assert made.report.unfreed == ()
    on.settled(device)
