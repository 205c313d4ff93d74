"""Whatever a block does to what is borrowed is undone, object by object."""

import copy
import random
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy
import pytest
import torch
from torch import nn

from offcert.runtime.capture.borrowed import borrowed, python_state_kept, random_state_kept
from offcert.runtime.capture.kernels import FakeTwins


@dataclass
class Memory:
    """What a model may hold that is no module."""

    steps: int = 0
    losses: list = field(default_factory=list)
    nested: dict = field(default_factory=lambda: {"deep": [{"deeper": {1, 2}}]})


class Busy(nn.Module):
    """Changes everything that a module can hold."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("mask", torch.ones(3))
        self.memory = Memory()
        self.queue = deque([1, 2], maxlen=2)
        self.names = OrderedDict(a=1, b=2)
        self.pair = (torch.zeros(2), [5])
        self.counts = numpy.zeros(3)
        self.rate = 0.5

    def change(self):
        self.memory.steps += 1
        self.memory.losses.append(torch.zeros(1))
        self.memory.nested["deep"][0]["deeper"].add(3)
        self.memory.nested["more"] = 1
        self.queue.append(9)
        self.names.move_to_end("a")
        self.names["a"] = 7
        self.pair[1].clear()
        self.counts += 1
        self.rate = 0.1
        self.new = "attribute"
        self.mask = torch.zeros(5)
        self.layer = nn.Sequential(nn.Linear(1, 1))
        self.register_buffer("another", torch.ones(1))
        self.extra = nn.Parameter(torch.ones(1))
        self.register_forward_hook(lambda *arguments: None)
        self.eval()


def content(thing, seen=None):
    """Return a comparable description of an object: identities of tensors, values of the rest."""
    if isinstance(thing, torch.Tensor):
        return "tensor", id(thing), thing.tolist()
    if isinstance(thing, numpy.ndarray):
        return "array", id(thing), thing.tolist()
    if isinstance(thing, dict):
        return "dict", id(thing), [(key, content(value)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | deque):
        return type(thing).__name__, id(thing), [content(value) for value in thing]
    if isinstance(thing, nn.Module | Memory):
        return type(thing), id(thing), content(vars(thing))
    return repr(thing)


@pytest.mark.parametrize("fails", [False, True])
def test_everything_that_a_module_holds(fails):
    model = Busy()
    before = content(model)
    with pytest.raises(ZeroDivisionError) if fails else borrowed(), borrowed(model):
        model.change()
        assert content(model) != before
        if fails:
            _ = 1 / 0
    assert content(model) == before


def test_what_can_only_be_reached_through_functions():
    losses, calls = [], 0
    state = {"rng": random.Random(1), "numbers": numpy.random.default_rng(2)}
    generator = torch.Generator().manual_seed(3)
    model = nn.Linear(2, 2)

    def hook(module, args, output):
        nonlocal calls
        calls += 1
        losses.append(output)
        state["rng"].random()
        state["numbers"].random()
        torch.rand(1, generator=generator)

    model.register_forward_hook(hook)

    def expected():
        torch_state = generator.get_state().tolist()
        return state["rng"].getstate(), state["numbers"].bit_generator.state, torch_state

    before = copy.deepcopy(expected())
    with borrowed(model):
        model(torch.ones(1, 2))
        assert calls == 1
        assert len(losses) == 1
        assert expected() != before
    assert calls == 0
    assert losses == []
    assert expected() == before


def test_tensors_get_their_storage_and_gradients_back():
    model = nn.Linear(2, 2)
    weight, gradient = model.weight, torch.ones(2, 2)
    weight.grad = gradient
    scale = model.scale = torch.ones(2, requires_grad=True)
    values, address = weight.tolist(), weight.data_ptr()
    with borrowed(model):
        assert weight.grad is None
        (model(torch.ones(1, 2)) * scale).sum().backward()
        assert scale.grad is not None
        weight.data = torch.zeros(5)
        weight.requires_grad_(False)
    assert weight.grad is gradient
    assert scale.grad is None
    assert weight.data_ptr() == address
    assert weight.tolist() == values
    assert weight.requires_grad


def test_a_lazy_module_is_lazy_again():
    model = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
    with borrowed(model):
        model(torch.ones(4, 3))
        assert type(model[0]) is nn.Linear
    assert type(model[0]) is nn.LazyLinear
    assert model[0].has_uninitialized_params()
    assert type(model[1]) is nn.LazyBatchNorm1d


def test_fake_twins_stand_wherever_a_model_holds_a_tensor():
    model = nn.ModuleDict({"lstm": nn.LSTM(2, 3), "out": nn.Linear(3, 3)})
    model["tied"] = nn.Linear(3, 3)
    model["tied"].weight = model["out"].weight
    model.extra = {"list": [torch.ones(2), (torch.ones(3), "text")]}
    flat = list(model["lstm"]._flat_weights)
    before = content(model.extra), [id(p) for p in model.parameters()]
    twins = FakeTwins()
    with borrowed(model, replace=twins.twin):
        with twins.mode:
            output, _ = model["lstm"](twins.twin(torch.ones(4, 1, 2)))
            model["tied"](model["out"](output)).sum().backward()
        fakes = [*model.parameters(), *model["lstm"]._flat_weights, model.extra["list"][1][0]]
        assert all(hasattr(tensor, "fake_mode") for tensor in fakes)
        assert model["tied"].weight is model["out"].weight
        assert model["lstm"]._flat_weights[0] is model["lstm"].weight_ih_l0
        assert model["out"].weight.grad is not None
    assert before == (content(model.extra), [id(p) for p in model.parameters()])
    assert all(a is b for a, b in zip(flat, model["lstm"]._flat_weights, strict=True))
    assert model["lstm"]._flat_weights[0] is model["lstm"].weight_ih_l0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_refers_to_itself_and_to_much():
    model = nn.Linear(1, 1)
    model.myself = [model]
    # Beyond what is looked at; the module's own attributes are nearer.
    model.much = [[number] for number in range(250_000)]
    model.near = {"value": 1}
    with borrowed(model):
        model.near["value"] = 2
        model.myself.append(3)
    assert model.near == {"value": 1}
    assert model.myself == [model]


def test_random_states():
    def draw():
        return random.random(), float(numpy.random.rand()), float(torch.rand(1))

    with random_state_kept():
        first = draw()
    with pytest.raises(AssertionError), random_state_kept():
        assert draw() != first
    with random_state_kept():
        assert draw() == first
    assert draw() == first
    assert draw() != first


def test_python_state_alone_leaves_gradients_and_numbers():
    model = Busy()
    with python_state_kept(model):
        model.layer(torch.ones(1, 3)).sum().backward()
        model.mask += 1
        model.rate = 0
    assert model.layer.weight.grad is not None
    assert model.mask.tolist() == [2, 2, 2]
    assert model.rate == 0.5
