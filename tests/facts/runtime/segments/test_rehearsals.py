"""Rehearsals: the first run is what autograd gets, and what must not run again never does."""

import copy
import os
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional

import offcert
from offcert.runtime.segments.alone import segmented
from offcert.runtime.watch.guard import OffloadWarning, RecomputeError
from support.runtime.joint_training import Unwatched, again

COUNT = {"calls": 0}
LIBRARY = torch.library.Library("offcert_tests", "DEF")
LIBRARY.define("counts(Tensor x) -> Tensor")
LIBRARY.define("plain(Tensor x) -> Tensor")


def counts(x):
    COUNT["calls"] += 1
    return x * (1 + COUNT["calls"] / 64)


LIBRARY.impl("counts", counts, "CompositeExplicitAutograd")
LIBRARY.impl("plain", lambda x: x * 2, "CompositeExplicitAutograd")


class Calls(torch.autograd.Function):
    """An operator of the user's own, as one with a derivative."""

    @staticmethod
    def forward(ctx, x, name):
        ctx.factor = name == "plain"
        return getattr(torch.ops.offcert_tests, name)(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 if ctx.factor else gradient, None


class Layer(nn.Module):
    """A layer that does something to what it computes."""

    def __init__(self, use, **held):
        super().__init__()
        torch.manual_seed(1)
        self.linear, self.use, self.runs = nn.Linear(8, 8), use, Unwatched()
        self.__dict__.update(held)

    def forward(self, x):
        self.runs.append(1)
        return torch.tanh(self.use(self, self.linear(x)))


def layers(layer):
    """Return a model in which a layer lies between two, all with the same numbers each time."""
    model = nn.Sequential(nn.Linear(8, 8), layer, nn.Linear(8, 8))
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def train(model, steps, between=lambda model, step: None):
    """Train, and return gradients of all steps."""
    found = []
    for step in range(steps):
        torch.manual_seed(step)
        model.zero_grad()
        loss = model(torch.randn(16, 8)).square().mean()
        between(model, step)
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        found.append([torch.zeros(0) if each is None else each.clone() for each in gradients])
    return found


def compare(make, steps=4, between=lambda model, step: None):
    """Train plainly and with a layer that runs again; return the layer that did."""
    COUNT["calls"] = 0
    expected = train(make(), steps, between)
    model = make()
    COUNT["calls"] = 0
    with segmented(model, again("1")):
        found = train(model, steps, between)
    for one, other in zip(expected, found, strict=True):
        assert all(map(torch.equal, one, other))
    return model[1]


def test_noise_that_is_saved_before_it_is_written():
    """A leaky unit with noise saves the noise before its kernel has filled it."""
    layer = compare(lambda: layers(Layer(lambda self, x: functional.rrelu(x, training=True))))
    assert len(layer.runs) == 8


def test_noise_that_is_the_last_thing_to_be_saved():
    class Last(nn.Module):
        def forward(self, x):
            return functional.rrelu(x, training=True)

    compare(lambda: layers(nn.Sequential(nn.Linear(8, 8), Last())))


def test_operators_written_in_python_never_run_again():
    def make():
        return layers(Layer(lambda self, x: Calls.apply(x, "counts")))

    with pytest.warns(OffloadWarning, match="offcert_tests::counts is written in Python"):
        layer = compare(make)
    assert COUNT["calls"] == len(layer.runs) == 4


def test_operators_that_were_declared_to_be_pure_do():
    offcert.pure("offcert_tests::plain")
    layer = compare(lambda: layers(Layer(lambda self, x: Calls.apply(x, "plain"))))
    assert len(layer.runs) == 8
    with pytest.raises(offcert.InputError, match="namespace::name"):
        offcert.pure("plain")


class Registry(OrderedDict):
    """Makes instances of the classes it holds, as registries of activations do."""

    def __getitem__(self, key):
        return super().__getitem__(key)()


def test_registries_are_read_and_never_changed():
    registry = Registry(tanh=nn.Tanh, relu=nn.ReLU)
    layer = compare(lambda: layers(Layer(lambda self, x: registry["tanh"](x))))
    assert len(layer.runs) == 8
    assert OrderedDict.__getitem__(registry, "tanh") is nn.Tanh


def put(self, x):
    self.held["n"] = self.held.get("n", 0) + 1
    return x * (1 + self.held["n"] / 8)


def grow(self, x):
    self.held.append(len(self.held))
    return x * (1 + len(self.held) / 8)


@pytest.mark.parametrize(("make", "use"), [(dict, put), (list, grow)])
def test_other_objects_that_change_are_not_put_back_but_refused(make, use):
    with pytest.warns(OffloadWarning, match="held changes, and cannot be put back"):
        layer = compare(lambda: layers(Layer(use, held=make())))
    # Not once was it run again.
    assert len(layer.runs) == 4


def test_a_cache_that_is_filled_at_the_first_call_does_not_matter():
    def use(self, x):
        if "scale" not in self.held:
            self.held["scale"] = torch.linspace(1, 2, 8)
        return x * self.held["scale"]

    layer = compare(lambda: layers(Layer(use, held={})))
    # The first step only filled it, the second one was the rehearsal.
    assert len(layer.runs) == 4 + 3


def test_a_rehearsal_that_fails_stands_in_for_nothing():
    """The first runs make other numbers than all others would; gradients are theirs."""
    drawn = []

    def use(self, x):
        drawn.append(int.from_bytes(os.urandom(4), "big") / 2**32)
        return x * (1 + drawn[-1])

    def replay(self, x):
        return x * (1 + next(values))

    model = layers(Layer(use))
    with segmented(model, again("1")), pytest.warns(OffloadWarning):
        found = train(model, 3)
    # Of the first step the first number counted; its second run, which was the last, found another.
    assert len(drawn) in (3, 4)
    values = iter(drawn if len(drawn) == 3 else [drawn[0], *drawn[2:]])
    for one, other in zip(train(layers(Layer(replay)), 3), found, strict=True):
        assert all(map(torch.equal, one, other))


def test_a_bias_that_changes_without_a_trace_raises_in_that_very_step():
    """Half of its features, by `.data`: no version tells, and samples lay in the other half."""

    def between(model, step):
        if step >= 2:
            model[1].linear.bias.data[:4] += 0.2

    model = layers(Layer(lambda self, x: torch.relu(x).exp().log1p()))
    steps = []
    with (
        segmented(model, again("1")),
        pytest.raises(RecomputeError, match="comes out different"),
    ):
        train(model, 4, lambda model, step: (steps.append(step), between(model, step)))
    assert steps == [0, 1, 2]


class Late(nn.Module):
    """A buffer that begins to change after a warm-up, as codebooks do."""

    def __init__(self, size):
        super().__init__()
        torch.manual_seed(1)
        self.linear, self.calls = nn.Linear(8, 8), 0
        self.register_buffer("book", torch.ones(size))

    def forward(self, x):
        y = self.linear(x)
        self.calls += 1
        if self.calls > 3:
            self.book.mul_(0.9).add_(0.1 * y.detach().mean())
        return torch.tanh(y * self.book[:8])


def test_small_state_that_begins_to_change_late_is_put_back():
    layer = compare(lambda: layers(Late(8)), steps=8)
    assert layer.calls == 8


def test_large_state_that_begins_to_change_late_raises_before_the_second_run():
    model = layers(Late(2**19))
    with segmented(model, again("1")), pytest.raises(RecomputeError, match="never changed before"):
        train(model, 8)


def test_late_changes_of_other_objects_are_found_by_verification():
    def use(self, x):
        self.seen.append(1)
        if len(self.seen) > 4:
            self.held["n"] = self.held.get("n", 0) + 1
        return x

    model = layers(Layer(use, held={}, seen=Unwatched()))
    with segmented(model, again("1")), pytest.warns(OffloadWarning, match="held changes"):
        train(model, 6)


def test_copies_are_no_part_of_a_plan():
    model = layers(Layer(lambda self, x: x))
    with segmented(model, again("1")):
        twin = copy.deepcopy(model)
        train(twin, 1)
    assert len(twin[1].runs) == 1
