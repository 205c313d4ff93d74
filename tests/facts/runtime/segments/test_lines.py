"""Lines that run again: on networks, and small programs each named for the trap that it sets."""

import copy
import gc
import json
import weakref
from itertools import pairwise

import pytest
import torch
from test_joint_networks import BLOCKS, images, nothing_leaves
from test_segment_traps import chain, losses, same_training
from torch import nn

from offcert.core.carried.ranges import RANGES
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.plan.place import place, program_of, steady
from offcert.runtime.segments import settings
from offcert.runtime.segments.alone import segmented
from offcert.runtime.watch.entries import InPlaceError
from offcert.runtime.watch.guard import OffloadWarning
from offcert.runtime.watch.operators import pure
from offcert.verification.execution import execution_faults
from support.runtime.captured import mean_step
from support.runtime.joint_training import (
    Unwatched,
    again,
    carried_by,
    compare_joint,
    line,
    live,
    problem_of,
    segment,
)


def middle(block, **options):
    """Return the line after the first convolution of a residual block."""
    return line(f"{block}.bn1", f"{block}.relu", f"{block}.conv2", **options)


def whole(block, **options):
    names = ("conv1", "bn1", "relu", "conv2", "bn2")
    return line(*(f"{block}.{name}" for name in names), **options)


def across(earlier, block):
    """Return the line from the last activation of a block into the next one."""
    return line((f"{earlier}.relu", 1), f"{block}.conv1", f"{block}.bn1")


HALVES = (("conv1", "bn1", "relu"), ("conv2", "bn2"))
RESNET = {
    "middles": again(*map(middle, BLOCKS)),
    "across blocks": again(
        line("bn1", "relu", "maxpool", "layer1.0.conv1", "layer1.0.bn1"),
        *(across(earlier, block) for earlier, block in pairwise(BLOCKS)),
    ),
    "convolutions stay": again(*(whole(b, kept=(f"{b}.conv1", f"{b}.conv2")) for b in BLOCKS)),
    "up to the sum": again(
        *(line(*(f"{b}.{name}" for name in names)) for b in BLOCKS for names in HALVES)
    ),
    "lines in lines and in blocks": again(
        *(whole(b, inner=(middle(b, inner=(segment(f"{b}.bn1"),)),)) for b in BLOCKS[::2]),
        *(segment(b, f"{b}.conv1", inner=(middle(b),)) for b in BLOCKS[1::2]),
    ),
}


@pytest.mark.parametrize("name", RESNET)
def test_training_and_live_bytes(name):
    step, placed = images("resnet18"), RESNET[name]
    for module in step.model.modules():
        if name == "across blocks" and isinstance(module, nn.ReLU):
            # A line cannot begin with a change in place.
            module.inplace = False
    _, captured = problem_of(step)
    found = carried_by(captured, placed)
    assert execution_faults(captured.network, found.execution) == []
    real = capture(step, program=placed)
    assert [tuple(tick) for tick in real.ticks] == list(found.ticks)
    assert [tuple(s.place[:4]) for s in real.storages] == [row[:4] for row in found.saved]
    (peaks, ends), (bounds, expected) = live(real.trace), live(found.execution.trace)
    assert ends == expected
    assert all(peak <= bound for peak, bound in zip(peaks, bounds, strict=True))
    steps = 3 if name == "middles" else 1
    outcome = compare_joint(step, placed, steps=steps).require_followed()
    assert outcome.reports[-1].offloaded_bytes > 0
    assert outcome.reports[-1].peak < outcome.plain_peak


def test_lines_alone():
    outcome = compare_joint(images("resnet18"), RESNET["middles"], plan=nothing_leaves, steps=1)
    assert outcome.require_followed().reports[-1].peak < outcome.plain_peak


def test_programs_and_ranges_come_back():
    _, captured = problem_of(images("resnet18"))
    for placed in RESNET.values():
        found = program_of(placed, captured.ranges, captured.ticks)
        again_placed = place(found, captured.ranges, captured.ticks)
        assert set(again_placed.nested()) == set(placed.nested())
    document = json.loads(json.dumps(RANGES.write(captured.ranges)))
    assert RANGES.read(Fields(document)) == captured.ranges
    del document["lines"]
    assert RANGES.read(Fields(document)).lines == ()


# What is a line, and what is none.


class Calls(nn.Module):
    """Calls two linear layers and others by a function of its own."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.4)
        self.act, self.change = nn.Tanh(), nn.ReLU(inplace=True)
        self.view = nn.Flatten()
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def step_of(function):
    return mean_step(Calls(function), 6, 8)


def simple(m, x):
    return m.second(m.act(m.drop(m.norm(m.first(x)))))


SIMPLE = again(line("norm", "drop", "act", "second"))


def lines_of(function):
    captured = capture(step_of(function))
    return [tuple(path for path, _ in each.calls) for each in captured.ranges.lines]


def test_what_is_computed_between_calls_ends_a_line():
    def adds(m, x):
        return m.second(m.act(m.drop(m.norm(m.first(x))) + 1))

    def looks(m, x):
        return m.second(m.act(m.drop(m.norm(m.first(x))).view(6, 8)))

    def changes(m, x):
        y = m.drop(m.norm(m.first(x)))
        y += 1
        return m.second(m.act(y))

    assert lines_of(simple) == [("first", "norm", "drop", "act", "second")]
    for function in (adds, looks, changes):
        assert lines_of(function) == [("first", "norm", "drop"), ("act", "second")]


def test_other_arguments_and_other_settings_end_a_line():
    def older(m, x):
        y = m.norm(m.first(x))
        m.drop(y)
        return m.second(m.act(y))

    def casts(m, x):
        y = m.norm(m.first(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = m.second(m.drop(y))
        return m.act(y).float()

    def detaches(m, x):
        return m.second(m.act(m.drop(m.norm(m.first(x))).detach_()))

    assert lines_of(older) == [("first", "norm", "drop"), ("act", "second")]
    assert lines_of(casts) == [("first", "norm"), ("drop", "second")]
    assert lines_of(detaches) == [("first", "norm", "drop"), ("act", "second")]


def test_children_of_a_sequential_need_no_line():
    assert capture(mean_step(chain(nn.Linear(8, 8), nn.Tanh()), 6, 8)).ranges.lines == ()


def test_modules_that_compute_nothing():
    def function(m, x):
        return m.second(m.view(m.act(m.first(x))))

    placed = again(line("act", "view", "second"))
    same_training(step_of(function), placed).require_followed()


@pytest.mark.parametrize(
    ("placed", "message"),
    [
        (again(line("norm", "missing")), "has no module missing"),
        (again(line("norm", "drop"), line("drop", "act")), "overlap"),
        (again(line("norm", "drop", inner=(line("drop", "act"),))), "is no part of"),
        (again(line("norm", "")), "the model itself"),
    ],
)
def test_lines_that_cannot_be_carried_out(placed, message):
    with pytest.raises(InputError, match=message), segmented(Calls(simple), placed):
        pass


# Traps.


def test_dropout_and_batch_norm():
    same_training(step_of(simple), SIMPLE).require_followed()
    keeping = again(line("norm", "drop", "act", "second", kept=("drop",)))
    same_training(step_of(simple), keeping).require_followed()


def test_result_in_the_line_that_is_used_elsewhere():
    def function(m, x):
        y = m.norm(m.first(x))
        z = m.act(m.drop(y))
        return m.second(z) * y + z

    placed = again(line("norm", "drop", "act", "second"))
    same_training(step_of(function), placed).require_followed()


def test_change_in_place_within_a_line():
    def function(m, x):
        return m.second(m.change(m.norm(m.first(x)))) + x

    for kept in ((), ("norm", "change")):
        placed = again(line("norm", "change", "second", kept=kept))
        same_training(step_of(function), placed).require_followed()
    # A result that is changed in place after the line.
    same_training(step_of(function), again(line("first", "norm"))).require_followed()


def test_input_that_is_changed_in_place_later():
    def function(m, x):
        y = m.first(x)
        z = m.second(m.act(y))
        y.mul_(2)
        return z + y

    placed = again(line("act", "second"))
    message = "act to second cannot run again: what it is given is changed in place"
    with pytest.warns(OffloadWarning, match=message):
        same_training(step_of(function), placed, offloading=False)
    with pytest.raises(InPlaceError, match=message):
        capture(step_of(function), program=placed)
    _, captured = problem_of(step_of(function))
    ends = {each.path for each in steady(captured.network, captured.ranges) if each.line}
    assert ends == {"first"}


def test_same_module_several_times():
    def function(m, x):
        return m.act(m.first(m.act(m.first(m.act(m.first(x))))))

    placed = again(line(("first", 1), ("act", 1), ("first", 2)))
    same_training(step_of(function), placed).require_followed()


def test_state_that_the_program_changes_between_calls():
    def function(m, x):
        m.drop.p = 0.2
        y = m.drop(m.norm(m.first(x)))
        m.drop.p = 0.7
        torch.random.default_generator.manual_seed(7)
        return m.second(m.drop(m.act(y)))

    placed = again(line("norm", ("drop", 0), "act", ("drop", 1), "second"))
    same_training(step_of(function), placed).require_followed()


@pytest.mark.parametrize("placed", [SIMPLE, again("drop")], ids=["line", "call"])
def test_generator_of_another_device(placed, monkeypatch):
    """A generator as a device has it, which PyTorch's checkpoint knows nothing of."""

    class Device:
        state = 0

        def get_rng_state(self, device):
            return torch.tensor(self.state)

        def set_rng_state(self, state, device):
            self.state = int(state)

    class Drops(nn.Module):
        def forward(self, x):
            drawn.append(device.state)
            device.state += 1
            return x * torch.cos(x + drawn[-1])

    device, drawn = pure(Device()), Unwatched()
    monkeypatch.setattr(settings, "device_module", lambda _: device)
    model = Calls(simple)
    model.drop = Drops()
    with segmented(model, placed):
        for _ in range(2):
            model(torch.randn(6, 8)).sum().backward()
    assert drawn == [0, 0, 1, 1]
    assert device.state == 2


def test_retained_graph_evaluation_and_no_grad():
    def twice(model, x):
        loss = model(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        model.eval()
        with torch.no_grad():
            loss = loss + model(x).sum()
        model.train()
        return loss

    step = step_of(simple)
    same_training(step, SIMPLE, losses(step, twice), offloading=False)
    step.model.eval()
    same_training(step, SIMPLE, losses(step, twice), offloading=False)


def test_autocast():
    def run(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    same_training(TrainingStep(Calls(simple), run, lambda: torch.randn(6, 8)), SIMPLE)


def test_gradient_computed_between_calls():
    def function(m, x):
        y = m.norm(m.first(x.detach().requires_grad_()))
        (g,) = torch.autograd.grad(y.sum(), m.first.weight, retain_graph=True)
        return m.second(m.act(m.drop(y))) + g.sum()

    placed = again(line("first", "norm", "drop", "act"))
    same_training(step_of(function), placed, offloading=False)


def test_hooks_of_the_user_are_called_again():
    calls = Unwatched()
    model = Calls(simple)
    model.act.register_forward_hook(lambda *_: calls.append("act"))
    model.second.register_forward_pre_hook(lambda *_: calls.append("second"))
    with segmented(model, SIMPLE):
        model(torch.randn(6, 8)).sum().backward()
    assert calls == ["act", "second", "act", "second"]


def test_copies_are_plain_and_nothing_is_left():
    model = Calls(simple)
    before = {name: set(module.__dict__) for name, module in model.named_modules()}
    with segmented(model, SIMPLE):
        twin = copy.deepcopy(model)
        assert twin.act._call_impl.__self__ is twin.act
    assert {name: set(module.__dict__) for name, module in model.named_modules()} == before


def test_nothing_lives_on_after_the_backward_pass():
    model, seen = Calls(simple), Unwatched()
    model.norm.register_forward_hook(lambda *a: seen.append(weakref.ref(a[2].untyped_storage())))
    gc.disable()
    try:
        with segmented(model, again(line("norm", "drop", "act", kept=("act",)))):
            out = model(torch.randn(6, 8))
            # The line holds nothing that it computes again.
            assert seen[0]() is None
            out.sum().backward()
            del out
            assert len(seen) == 2
            assert seen[1]() is None
    finally:
        gc.enable()
