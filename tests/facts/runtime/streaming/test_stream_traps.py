"""The traps of those before us, each a test named for it: on streams, simulated and of CUDA."""

import copy
import gc
import warnings
import weakref
from functools import partial

import pytest
import torch

from offcert.core.errors import InputError, OffcertError
from offcert.runtime.device.interface import GraphCaptureError
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.timetable import Act
from offcert.runtime.simulated import SimulatedDevice
from offcert.training import offload as make_plans
from support.runtime.stream_steps import (
    Layers,
    On,
    captured_problem,
    closed,
    context,
    evicting,
    followed,
    gradients,
    mean,
    parts_of,
    same,
    tight,
)

# The traps of those before us.


@pytest.mark.parametrize("rates", [(1, 1000), (1000, 1)])
def test_a_reload_that_races_its_own_copy_out(on, rates):
    # The copy to the host ends long after the copy back could have begun, or long before.
    followed(on, Layers(8), 64, 8, steps=3, rates=rates, duration=1)


def test_an_address_used_again_and_taken_for_a_live_view(on):
    # Each result dies as soon as it has left; the next one lies there, or what comes back does.
    followed(on, Layers(12, torch.clone), steps=3)


def test_a_context_left_without_synchronising_leaks_no_memory(on):
    made, device = context(on, Layers())
    # Libraries take memory of the allocator's when they are first called, and keep it.
    gradients(on, copy.deepcopy(made.follower.root))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        with made:
            before = device.memory().allocated
            loss = mean(made.follower.root, on.randn(4, 8))
            held = weakref.ref(made.follower.run._mover)
            del loss
    # Copies were under way as the context ended, and nobody has waited since.
    assert held() is None
    on.settled(device)
    assert device.memory().allocated <= before


class Hoarder(torch.autograd.Function):
    """Keeps its result in a way of its own, or as one should."""

    hoards = True

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        if Hoarder.hoards:
            ctx.kept = y
        ctx.save_for_backward(y)
        return y.view_as(y)

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        ctx.kept = None
        return gradient * (1 - y * y)


def test_nothing_freed_because_autograds_node_keeps_a_reference(on, monkeypatch):
    monkeypatch.setattr(Hoarder, "hoards", False)
    model = Layers(5, Hoarder.apply)
    made, device = context(on, model)
    expected = gradients(on, copy.deepcopy(model))
    with made:
        assert same(gradients(on, model), expected)
        assert made.report.unfreed == ()
        monkeypatch.setattr(Hoarder, "hoards", True)
        assert same(gradients(on, model), expected)
        (unfreed,) = made.report.unfreed
        assert unfreed.size == 4 * 8 * 4
        # The limit is what the plan needs to the byte, or nearly.
        assert "128 bytes more than planned are held" in made.report.deviation
    on.settled(device)


def test_a_prefetch_does_not_raise_the_peak():
    here = On("simulated")
    model = Layers()
    problem = captured_problem(model)
    plan = evicting(problem)
    problem = tight(problem, plan)
    limit = problem.platform.memory
    device = SimulatedDevice(problem.platform, memory=limit)
    made = follow(model, plan, problem, FollowOptions(device=device, count=True))
    with made:
        expected = gradients(here, model)
        assert made.report.planned
        assert device.memory().peak_allocated == limit
        # The same, but what has left is claimed again at once.
        table = made.step_plans[0].timetable
        object.__setattr__(table, "actions", _claimed_at_once(table.actions))
        with pytest.raises(torch.OutOfMemoryError, match=f"of {limit}"):
            gradients(here, model)
    here.settled(device)
    assert same(gradients(here, model), expected)


def _claimed_at_once(actions):
    claims = {a.gap: a for row in actions for a in row if a.act is Act.CLAIM}
    return tuple(
        (
            *(a for a in row if a.act is not Act.CLAIM),
            *(claims[a.gap] for a in row if a.act is Act.RELEASE),
        )
        for row in actions
    )


def test_what_has_no_room_when_the_plan_brings_it_back_comes_when_it_is_asked_for(on):
    model = Layers()
    made, device = context(on, model)
    expected = gradients(on, copy.deepcopy(made.follower.root))
    allocate, refusals = device.allocate, [1]

    def full_at_first(size):
        if refusals:
            refusals.pop()
            raise torch.OutOfMemoryError("there is none")
        return allocate(size)

    with made:
        device.allocate = full_at_first
        with pytest.warns(OffloadWarning, match="the device has no 128 bytes for what comes back"):
            assert same(closed(on, made, model), expected)
        assert made.report.late_bytes == 128
        assert same(gradients(on, model), expected)
        assert made.report.planned
    on.settled(device)


def test_pinned_memory_is_not_rounded_up(on):
    made, device = context(on, Layers(4), 3, 8)
    sizes = []
    arena = device.arena
    device.arena = lambda size, *order: sizes.append(size) or arena(size, *order)
    model = made.follower.root
    with made:
        mean(model, on.randn(3, 8)).backward()
        (size,) = sizes
        assert size == made.step_plans[0].host.pool == made.report.arena_bytes
        assert size & (size - 1), "a power of two would show nothing"
        (room,) = made.follower.mover_maker._made
        assert room.arena.view(0, size).untyped_storage().nbytes() == size
        if on.is_simulated:
            assert device.pinned_bytes == size
    on.settled(device)


class Breakable(Layers):
    """Raises where it is told to."""

    error = None
    where = None

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = torch.sigmoid(layer(x))
            if self.where == ("forward", index):
                raise self.error
            if self.where == ("backward", index):
                x.register_hook(self._fail)
        return x

    def _fail(self, gradient):
        raise self.error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "where", [("forward", 3), ("backward", 3), ("backward", 0), "loss", "optimiser"], ids=str
)
def test_no_stale_state_after_an_exception(on, where, error):
    model = Breakable()
    made, device = context(on, model)
    expected = gradients(on, copy.deepcopy(model))

    def fails():
        model.where = where
        loss = mean(model, on.randn(4, 8))
        if where == "loss":
            raise error
        loss.backward()
        raise error

    with made:
        for _ in range(2):
            assert same(gradients(on, model), expected)
            assert made.report.planned
            model.error = error
            with pytest.raises(error):
                fails()
            model.where = None
            gc.collect()
        assert same(gradients(on, model), expected)
        assert made.report.planned
        # A step that has failed holds no room, and no other one gets more.
        assert len(made.follower.mover_maker._made) == 1
    on.settled(device)
    with pytest.raises(error), made:
        fails()
    model.where = None
    on.settled(device)
    assert all(not module._forward_hooks for module in model.modules())


def test_a_retained_graph_and_a_second_backward_pass(on):
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made.follower.root)
    found = []
    for each in (plain, model):
        torch.manual_seed(0)
        each.zero_grad()
        with made if each is model else warnings.catch_warnings():
            warnings.simplefilter("ignore", OffloadWarning)
            loss = mean(each, on.randn(4, 8))
            loss.backward(retain_graph=True)
            loss.backward()
        found.append(parts_of(each)["gradients"])
    assert same(found[0].values(), found[1].values())
    # By the second one, what the first had brought back is there; nothing is late twice.
    on.settled(device)


def test_outputs_that_the_caller_also_holds(on):
    model = Layers()
    # They take more than the plan needs.
    made, device = context(on, model, count=False)
    kept = []
    plain = copy.deepcopy(made.follower.root)
    torch.manual_seed(0)
    output = plain(on.randn(4, 8))
    output.square().mean().backward()
    with made:
        torch.manual_seed(0)
        kept.append(model(on.randn(4, 8)))
        kept[0].square().mean().backward()
        assert made.report.planned
        assert made.report.offloaded_bytes > 0
    assert torch.equal(kept[0], output)
    assert same(parts_of(model)["gradients"].values(), parts_of(plain)["gradients"].values())
    on.settled(device)


def test_what_the_program_holds_stays_and_is_reported(on):
    kept = []
    model = Layers(5, lambda x: kept.append(x.detach()) or x)
    problem = captured_problem(Layers())
    plan = evicting(problem)
    device = on.device(problem)
    expected = gradients(on, on.put(copy.deepcopy(model)))
    with follow(on.put(model), plan, tight(problem, plan), FollowOptions(device=device)) as made:
        assert same(gradients(on, model), expected)
        (unfreed,) = made.report.unfreed
        assert unfreed.size == 128
    on.settled(device)


def test_modules_compiled_to_cuda_graphs_are_refused_by_name(on):
    model = on.put(Layers())
    problem = captured_problem(model)
    model.layers[2] = torch.compile(model.layers[2], mode="reduce-overhead")
    device = on.device(problem)
    with pytest.raises(InputError, match=r"layers\.2 is compiled to CUDA graphs"):
        follow(model, evicting(problem), problem, FollowOptions(device=device))
    # On the CPU this mode has none.
    if on.is_simulated:
        follow(model, evicting(problem), problem)


class Capturing(SimulatedDevice):
    """Says that a graph is captured where the test says so."""

    capturing = False

    def require_movable(self):
        if self.capturing:
            raise GraphCaptureError("while a CUDA graph is captured")

    def _copy(self, stream, kind, parts):
        self.require_movable()
        super()._copy(stream, kind, parts)


@pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")
@pytest.mark.parametrize("where", ["around", "in the forward pass", "in the backward pass"])
def test_no_stream_is_told_anything_while_a_graph_is_captured(where, monkeypatch):
    # One that waited for an event of the captured stream would be captured, too.
    model, on = Layers(), On("simulated")
    problem = captured_problem(model)
    plan = evicting(problem)
    device = Capturing(problem.platform)
    expected = gradients(on, copy.deepcopy(model))
    with follow(model, plan, tight(problem, plan), FollowOptions(device=device)):
        steps = partial(gradients, on, model)
        if where == "in the backward pass":
            steps = mean(model, on.randn(4, 8)).backward
        told = device.out.given, device.back.given
        if where == "in the forward pass":
            monkeypatch.setattr(model, "middle", _capturing(device))
        else:
            device.capturing = True
        with pytest.raises(GraphCaptureError, match="while a CUDA graph is captured"):
            steps()
        if where != "in the forward pass":
            assert (device.out.given, device.back.given) == told
        device.capturing = False
        monkeypatch.undo()
        assert same(gradients(on, model), expected)
    on.settled(device)


def test_a_step_is_not_studied_while_a_graph_is_captured():
    model, on = Layers(), On("simulated")
    device = Capturing(captured_problem(model).platform)
    device.capturing = True
    asked = {"memory": "50%", "hardware": "v100-pcie", "background": False, "time_limit": 0.2}
    with make_plans(model, "auto", device=device, **asked) as training:
        with pytest.raises(GraphCaptureError, match="while a CUDA graph is captured"):
            gradients(on, model)
        device.capturing = False
        gradients(on, model)
        gradients(on, model)
        assert training.steps == {"studied": 1, "planned": 1}
    on.settled(device)


def _capturing(device):
    """Return what begins to capture a graph in the middle of a model."""

    def begin(x):
        device.capturing = True
        return x

    return begin


@pytest.mark.cuda
def test_a_graph_that_is_captured_around_a_step_is_refused_by_name():
    on = On("cuda")
    made, device = context(on, Layers())
    model = made.follower.root
    inputs = on.randn(4, 8)
    with made:
        gradients(on, model)
        device.synchronise()
        with pytest.raises(OffcertError, match="while a CUDA graph is captured"):
            _graph_of(model, inputs)
        device.synchronise()
        gradients(on, model)
    on.settled(device)


def _graph_of(model, inputs):
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        mean(model, inputs).backward()
