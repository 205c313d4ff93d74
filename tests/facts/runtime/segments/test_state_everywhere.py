"""State that lives outside of parameters, buffers and numbers: each test is named for where."""

import contextlib
import copy
import io
import itertools
import random
from collections import Counter, deque
from dataclasses import dataclass

import numpy
import pytest
import torch
from test_segment_traps import BLOCKS, Three, same_training
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from offcert.runtime.segments.alone import segmented
from offcert.runtime.segments.saved import ComparisonMode
from offcert.runtime.watch.guard import OffloadWarning, RecomputeError
from support.runtime.captured import mean_step
from support.runtime.joint_training import Unwatched, again

# What files and globals hold here.
SHARED = {"scale": 1.0, "calls": 0}


@dataclass
class Box:
    """A number in an object."""

    number: int = 0


def count(box, name="number"):
    """Count in an object, and return a factor that depends on it."""
    setattr(box, name, getattr(box, name) + 1)
    return 1 + getattr(box, name) / 8


class Homeless(Box):
    """A number in an object that says itself which module it is of, as compiled functions do."""

    __module__ = property(lambda self: "elsewhere")


class Keeps(nn.Module):
    """A layer with something to remember, and what to do with it."""

    def __init__(self, held, use):
        super().__init__()
        torch.manual_seed(1)
        self.linear, self.held, self.use = nn.Linear(8, 8), held, use

    def forward(self, x):
        return torch.tanh(self.linear(x) * self.use(self.held))


def rebound(module, value):
    """Rebind a tensor attribute, as running means are."""
    module.mean = 0.9 * module.mean + 0.1 * value
    return module.mean


class Rebinds(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.linear, self.mean, self.memory = nn.Linear(8, 8), torch.zeros(8), torch.zeros(8)

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        y = torch.tanh(self.linear(x) - self.mean + self.memory)
        # Memory over steps: the graph is cut.
        self.memory = y.detach().mean(0)
        return y


def grow(held):
    held.append(len(held))
    return 1 + sum(held) / 8


def put(held):
    held["n"] = held.get("n", 0) + 1
    return 1 + held["n"] / 8


def closure():
    total = 0

    def use(_):
        nonlocal total
        total += 1
        return 1 + total / 8

    return use


def in_file(_):
    SHARED["calls"] += 1
    return 1 + SHARED["calls"] % 16 / 8


class Norm:
    """No module: so its batch norm is none of the model's."""

    def __init__(self):
        torch.manual_seed(2)
        self.norm = nn.BatchNorm1d(8)

    def use(self):
        self.norm(torch.ones(4, 8) * torch.arange(4.0)[:, None])
        return 1 + self.norm.running_mean.sum() / 8


REMEMBERED = {
    "dictionary": (dict, put),
    "Counter": (Counter, put),
    "list": (list, grow),
    "deque": (lambda: deque(maxlen=3), grow),
    "object": (Box, count),
    "object of no module": (Homeless, count),
    "closure": (int, closure()),
    "file": (int, in_file),
    "array": (lambda: numpy.ones(3), lambda held: held.__imul__(1.1).sum() / 3),
    "torch generator": (
        lambda: torch.Generator().manual_seed(3),
        lambda held: torch.rand((), generator=held) + 0.5,
    ),
    "numpy generator": (lambda: numpy.random.default_rng(3), lambda held: held.random() + 0.5),
    "generator": (lambda: random.Random(3), lambda held: held.random() + 0.5),
    "batch norm in a list": (lambda: [Norm()], lambda held: held[0].use()),
}


def states(model):
    """Return what the layers remember, as text."""
    found = []
    for module in model.modules():
        held = getattr(module, "held", None)
        if isinstance(held, torch.Generator):
            found.append(held.get_state().tolist())
        elif isinstance(held, list) and held and isinstance(held[0], Norm):
            found.append(held[0].norm.running_mean.tolist())
        elif isinstance(held, numpy.random.Generator):
            found.append(str(held.bit_generator.state))
        elif type(held) is random.Random:
            found.append(hash(held.getstate()))
        elif held is not None:
            found.append(repr(held))
    return found


def train(model, steps=4, between=lambda model, when: None):
    """Train, and return losses, gradients and what the layers remember."""
    seen = []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(5)
    for _ in range(steps):
        optimiser.zero_grad()
        between(model, "before")
        loss = model(torch.randn(6, 8)).square().mean()
        between(model, "between")
        loss.backward()
        between(model, "after")
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        seen.append([loss.detach(), *grads])
        optimiser.step()
    return seen, states(model)


def compare(model, placed, **options):
    """Train plainly and with parts that run again; everything must be the same."""
    plain = copy.deepcopy(model)
    SHARED.update(scale=1.0, calls=0)
    expected, remembered = train(plain, **options)
    SHARED.update(scale=1.0, calls=0)
    with segmented(model, placed):
        found, ours = train(model, **options)
    for one, other in zip(expected, found, strict=True):
        assert all(map(torch.equal, one, other))
    assert ours == remembered


@pytest.mark.parametrize("where", REMEMBERED)
def test_what_is_remembered_is_put_back_and_changes_once(where):
    make, use = REMEMBERED[where]
    if where == "closure":
        # Each model has its own: a copy of a model shares its functions.
        plain, ours = (nn.Sequential(nn.Linear(8, 8), Keeps(0, closure())) for _ in range(2))
        ours.load_state_dict(plain.state_dict())
        expected, _ = train(plain)
        with segmented(ours, again("1")):
            found, _ = train(ours)
        for one, other in zip(expected, found, strict=True):
            assert all(map(torch.equal, one, other))
        return
    compare(nn.Sequential(nn.Linear(8, 8), Keeps(make(), use), nn.Linear(8, 8)), again("1"))


def test_it_does_run_again():
    runs = Unwatched()
    model = nn.Sequential(nn.Linear(8, 8), Keeps(1, float), nn.Linear(8, 8))
    model[1].register_forward_pre_hook(lambda *_: runs.append(1))
    with segmented(model, again("1")):
        train(model, steps=3)
    assert len(runs) == 6


def test_tensors_that_are_rebound_and_memory_over_steps():
    same_training(
        mean_step(nn.Sequential(nn.Linear(8, 8), Rebinds(), nn.Linear(8, 8)), 6, 8),
        again("1"),
        offloading=False,
    )


# What a segment reads from elsewhere, and somebody else changes.


class Reads(Three):
    """Reads a dictionary of the file, an object that others hold too, and what it is told."""

    def __init__(self, box):
        super().__init__()
        self.box = box
        for block in self.blocks:
            block.box, block.mask, block.function = box, None, None
            block.forward = self.scaled(block)

    @staticmethod
    def scaled(block):
        def forward(x):
            y = torch.tanh(block.first(x)) * SHARED["scale"] * (1 + block.box.number / 8)
            return block.second(y if block.mask is None else y * block.mask)

        return forward


def reads():
    return Reads(Box())


def config(model, when):
    model.box.number = {"before": 0, "between": 3, "after": 1}[when]


def file(model, when):
    SHARED["scale"] = {"before": 1.0, "between": 0.5, "after": 2.0}[when]


def masks(model, when):
    for number, block in enumerate(model.blocks):
        block.mask = torch.ones(8) * (number + 1) if when == "before" else torch.zeros(8)


@pytest.mark.parametrize("change", [config, file, masks])
def test_what_others_change_between_the_passes(change):
    # Functions of a copy would be those of the original.
    torch.manual_seed(0)
    plain, ours = reads(), reads()
    ours.load_state_dict(plain.state_dict())
    SHARED.update(scale=1.0)
    expected, _ = train(plain, between=change)
    SHARED.update(scale=1.0)
    with segmented(ours, BLOCKS):
        found, _ = train(ours, between=change)
    for one, other in zip(expected, found, strict=True):
        assert all(map(torch.equal, one, other))


def swap_weights(model, when):
    """Train with other weights in the forward pass only, as with averages of them."""
    if when == "after":
        return
    for parameter in model.blocks[1].parameters():
        average = getattr(model, "averages", {}).setdefault(id(parameter), parameter.data * 0.5)
        parameter.data, model.averages[id(parameter)] = average, parameter.data


def change_biases(model, when):
    if when == "between":
        for block in model.blocks:
            block.first.bias.data.mul_(1.5)


@pytest.mark.parametrize("change", [swap_weights, change_biases])
def test_weights_that_are_changed_between_the_passes_are_seen_in_the_rehearsal(change):
    plain, ours = Three(), Three()
    plain.averages, ours.averages = {}, {}
    expected, _ = train(plain, between=change)
    with segmented(ours, BLOCKS), pytest.warns(OffloadWarning, match=r"blocks\.1 does not run"):
        found, _ = train(ours, between=change)
    for one, other in zip(expected, found, strict=True):
        assert all(map(torch.equal, one, other))


def test_weights_that_are_changed_later_raise_before_gradients_are_wrong():
    model = Three()
    with segmented(model, BLOCKS):
        train(model, steps=2)
        before = [p.grad.clone() for p in model.blocks[0].parameters() if p.grad is not None]
        loss = model(torch.randn(6, 8)).square().mean()
        change_biases(model, "between")
        with pytest.raises(RecomputeError, match=r"blocks\.2 was run again .* comes out different"):
            loss.backward()
        after = [p.grad for p in model.blocks[0].parameters() if p.grad is not None]
        assert all(map(torch.equal, before, after))


def test_other_weights_than_the_modules_own():
    model = Three()
    plain = copy.deepcopy(model)

    def grads(model):
        torch.manual_seed(3)
        fast = {name: p * 0.9 for name, p in model.named_parameters()}
        out = torch.func.functional_call(model, fast, (torch.randn(6, 8),))
        out.square().mean().backward()
        return [p.grad for p in model.parameters()]

    expected = grads(plain)
    with segmented(model, BLOCKS):
        assert all(map(torch.equal, expected, grads(model)))


# Modes.


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = (each[None, None] for each in self.inner(x).chunk(3, -1))
        return nn.functional.scaled_dot_product_attention(q, k, v)[0, 0] + torch.ones(8).mean()


@contextlib.contextmanager
def double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("mode", [lambda: sdpa_kernel(SDPBackend.MATH), double])
def test_modes_of_the_forward_pass_alone(mode):
    model = nn.Sequential(nn.Linear(8, 8), Attends(), nn.Linear(8, 8))
    plain = copy.deepcopy(model)

    def grads(model):
        torch.manual_seed(3)
        with mode():
            loss = model(torch.randn(6, 8, dtype=torch.float32)).float().square().mean()
        loss.backward()
        return [p.grad for p in model.parameters()]

    expected = grads(plain)
    with segmented(model, again("1")):
        assert all(map(torch.equal, expected, grads(model)))
        assert torch.get_default_dtype() is torch.float32


# What cannot be proved is refused, by name.


@pytest.mark.parametrize(
    ("held", "use", "reason"),
    [
        (
            itertools.count(),
            lambda held: 1 + next(held) / 8,
            "held changes, and cannot be put|a count may",
        ),
        (io.StringIO(), lambda held: 1 + held.write("x") / 8, "held changes, and cannot be put"),
        ((x for x in range(99)), lambda held: 1 + next(held) / 8, "a generator may change unseen"),
        (None, lambda held: eval("1.5"), "reaches by eval may change unseen"),
        (random.SystemRandom(), lambda held: held.random(), "comes out different|may change"),
    ],
)
def test_what_cannot_be_put_back_never_runs_again(held, use, reason):
    runs = Unwatched()
    model = nn.Sequential(nn.Linear(8, 8), Keeps(held, use), nn.Linear(8, 8))
    model[1].register_forward_pre_hook(lambda *_: runs.append(1))
    with segmented(model, again("1")), pytest.warns(OffloadWarning, match=reason):
        train(model, steps=3)
    # In the rehearsal at most.
    assert 3 <= len(runs) <= 4


@pytest.mark.parametrize(("every", "verified"), [(None, 2), (2, 3), (1, 6)])
def test_segments_are_verified_in_turn(every, verified):
    """Of three segments one in each step, or each as often as it is asked for."""
    from offcert.runtime.segments.attach import Segments

    modes = Counter()
    model = Three()
    segments = Segments(model, [BLOCKS], verify_every=every)
    segments.attach()
    try:
        for _ in range(7):
            segments.begin_call(0, {})
            out = model(torch.randn(6, 8))
            for walk in [segments.now.walk]:
                for part in walk.lookup.calls.values():
                    modes[part.name, segments.mode(part, walk)] += 1
            segments.end_call()
            out.sum().backward()
    finally:
        segments.detach()
    assert {modes[f"blocks.{n}", ComparisonMode.ALL] for n in range(3)} == {verified}
    assert {modes[f"blocks.{n}", ComparisonMode.REHEARSAL] for n in range(3)} == {1}
