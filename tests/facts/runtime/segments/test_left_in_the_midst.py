"""A second run ends where nothing more of it is needed: in the midst of the user's code."""

import gc
import itertools
import random
import weakref

import numpy
import pytest
import torch
from test_rehearsals import compare, layers, train
from torch import nn
from torch.nn import functional

from offcert.runtime.segments.alone import segmented
from offcert.runtime.segments.settings import HELD
from offcert.runtime.watch.guard import OffloadWarning
from support.runtime.joint_training import Unwatched, again


class Layer(nn.Module):
    """A layer that does something before and after what it saves last."""

    def __init__(self, before, after, **held):
        super().__init__()
        torch.manual_seed(1)
        self.linear, self.before, self.after = nn.Linear(8, 8), before, after
        self.dropout, self.inside, self.saved = nn.Dropout(0.3), False, None
        self.__dict__.update(held)

    def forward(self, x):
        factor = 2.0 if self.inside else 1.0
        self.before(self)
        # The input of this product is the last tensor that is saved.
        y = self.linear(torch.tanh(self.dropout(x)) * factor)
        self.after(self)
        return y


def toggled(self):
    self.inside = not self.inside


def seeded(self):
    self.saved = Unwatched([random.getstate(), numpy.random.get_state()])
    random.seed(7)
    numpy.random.seed(7)


def unseeded(self):
    random.setstate(self.saved[0])
    numpy.random.set_state(self.saved[1])


CHANGES = {
    "a flag": (toggled, toggled),
    "a mode": (lambda self: self.dropout.train(False), lambda self: self.dropout.train(True)),
    "whether a weight is trained": (
        lambda self: self.linear.weight.requires_grad_(False),
        lambda self: self.linear.weight.requires_grad_(True),
    ),
    "the default data type": (
        lambda self: torch.set_default_dtype(torch.float64),
        lambda self: torch.set_default_dtype(torch.float32),
    ),
    "deterministic kernels": (
        lambda self: torch.use_deterministic_algorithms(True),
        lambda self: torch.use_deterministic_algorithms(False),
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_changed_for_a_while_is_as_it_was_afterwards(kind):
    before, after = CHANGES[kind]
    layer = compare(lambda: layers(Layer(before, after)), steps=6)
    assert not layer.inside
    assert layer.dropout.training
    assert torch.get_default_dtype() is torch.float32
    assert not torch.are_deterministic_algorithms_enabled()


def test_generators_that_are_seeded_for_a_while():
    random.seed(1)
    numpy.random.seed(1)
    state = random.getstate(), numpy.random.get_state()[1].tolist()
    model = layers(Layer(seeded, unseeded, saved=Unwatched()))
    with segmented(model, again("1")):
        train(model, 4)
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == state


def test_objects_that_are_changed_for_a_while_are_not_left_so():
    """Nothing puts them back: such a run goes on to its end."""
    stack = []
    model = layers(Layer(lambda self: stack.append(1), lambda self: stack.pop()))
    with segmented(model, again("1")):
        train(model, 4)
    assert stack == []


def test_other_tensors_than_in_the_rehearsal():
    """Noise that is saved before it is written lies elsewhere among them then."""

    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.linear, self.calls = nn.Linear(8, 8), itertools.count()

        def forward(self, x):
            return functional.rrelu(self.linear(x), training=True)

    def freeze(model, step):
        for parameter in model[1].parameters():
            parameter.requires_grad_(step < 1)

    def make():
        return layers(nn.Sequential(Noisy()))

    class Drops(nn.Module):
        """Leaves its first layer out in some steps."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.first, self.second, self.step = nn.Linear(8, 8), nn.Linear(8, 8), 0

        def forward(self, x):
            self.step += 1
            x = x if self.step % 3 == 2 else torch.tanh(self.first(x))
            return functional.rrelu(self.second(x), training=True)

    compare(lambda: layers(Drops()), steps=9)
    expected, model = train(make(), 4, freeze), make()
    with segmented(model, again("1")):
        found = train(model, 4, freeze)
    for one, other in zip(expected, found, strict=True):
        assert all(map(torch.equal, one, other))


class Tracked(nn.Module):
    """A buffer that an object beside the module holds as well, and changes."""

    def __init__(self, hold):
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))
        self.holder = hold(self.mean)

    def forward(self, x):
        held = self.holder
        while not isinstance(held, torch.Tensor):
            held = next(iter(held.values())) if isinstance(held, dict) else held[0]
        held.mul_(0.9).add_(x.detach().mean(0))
        return torch.tanh(self.linear(x) + held)


@pytest.mark.parametrize("hold", [lambda t: [t], lambda t: {"a": (t, 1)}], ids=["list", "nested"])
def test_buffers_that_others_hold_too_are_never_changed_twice(hold):
    with pytest.warns(OffloadWarning, match="does not run again any more"):
        compare(lambda: layers(Tracked(hold)))


def test_hooks_that_are_registered_later_are_looked_into():
    counts = {"calls": 0}

    def hook(*_):
        counts["calls"] += 1

    def between(model, step):
        if step == 2:
            model[1].linear.register_forward_hook(hook)

    model = layers(Layer(lambda self: None, lambda self: None))
    with segmented(model, again("1")), pytest.warns(OffloadWarning, match="counts, a variable of"):
        train(model, 6, between)
    # The step in which it was new is told of; from then on it is called once in each.
    assert counts["calls"] <= 4


def test_modules_that_are_replaced_have_their_state():
    def make():
        return layers(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)))

    def both(model):
        found = train(model, 2)
        model[1][1] = nn.BatchNorm1d(8)
        return found + train(model, 4)

    plain, model = make(), make()
    expected = both(plain)
    with segmented(model, again("1")):
        found = both(model)
    for one, other in zip(expected, found, strict=True):
        assert all(map(torch.equal, one, other))
    assert torch.equal(plain[1][1].running_mean, model[1][1].running_mean)


def test_nothing_grows_with_backward_passes_through_a_part():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            y = torch.tanh(self.linear(x))
            return torch.sigmoid(y), torch.sin(torch.exp(y))

    def alive():
        gc.collect()
        return sum(isinstance(each, torch.Tensor) for each in gc.get_objects())

    model = nn.Sequential(nn.Linear(8, 8), Two())
    with segmented(model, again("1")):
        for _ in range(2):
            _, second = model(torch.randn(4, 8))
            counts = []
            for _ in range(4):
                torch.autograd.grad(second.sum(), model[0].weight, retain_graph=True)
                counts.append(alive())
    assert counts[0] == counts[-1]


def test_what_a_module_keeps_is_not_kept_longer():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.last = nn.Linear(8, 8), None

        def forward(self, x):
            self.last = self.linear(x)
            return torch.tanh(self.last)

    model = nn.Sequential(nn.Linear(8, 8), Keeps(), nn.Linear(8, 8))
    with segmented(model, again("1")):
        for _ in range(3):
            loss = model(torch.randn(4, 8)).sum()
            kept = weakref.ref(model[1].last)
            loss.backward()
            del loss
            model[1].last = None
            gc.collect()
            assert kept() is None


def test_copies_are_forgotten_if_the_first_run_fails():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("calls", torch.zeros(100))

        def forward(self, x):
            self.calls += 1
            raise ValueError("no")

    model = nn.Sequential(nn.Linear(8, 8), Fails())
    gc.collect()
    before = HELD.live
    with segmented(model, again("1")):
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                model(torch.randn(4, 8))
    gc.collect()
    assert HELD.live == before
