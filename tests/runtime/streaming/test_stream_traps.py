"""Small programs, each named for the trap that it sets to copies in streams; see also `traps`."""

import copy
import gc
import random
import threading
import warnings
import weakref
from fractions import Fraction

import pytest
import torch
from captured import evicted_bytes
from stream_steps import (
    Layers,
    On,
    captured_problem,
    evicting,
    followed,
    mean,
    parts_of,
    random_plan,
    tight,
    trained,
)
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.core.platform import Link
from offcert.runtime.device.simulated import SimulatedDevice
from offcert.runtime.offload import OffloadWarning, offload
from offcert.runtime.saved import InPlaceError
from offcert.runtime.streaming.timetable import Act


def context(on, model, *shape, room=0, **options):
    """Return a context in which all that may leave leaves, with its device."""
    problem = captured_problem(model, *shape)
    plan = evicting(problem)
    limited = tight(problem, plan)
    limited = limited.with_memory(limited.platform.memory + room)
    device = on.device(limited)
    return offload(on.put(model), plan, limited, device=device, **options), device


def gradients(on, model, turn=0):
    """Take a step; return its gradients."""
    torch.manual_seed(turn)
    model.zero_grad()
    mean(model, on.randn(4, 8)).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def closed(on, made, model):
    """Take a step, and let the context take stock of it at once; return its gradients."""
    found = gradients(on, model)
    made._close_run("the test looks")
    return found


def same(first, second):
    return all(map(torch.equal, first, second))


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        with made:
            before = device.memory().allocated
            loss = mean(made._root, on.randn(4, 8))
            held = weakref.ref(made._run._mover)
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
        assert made.report.planned
    on.settled(device)


def test_a_prefetch_does_not_raise_the_peak():
    here = On("simulated")
    model = Layers()
    problem = captured_problem(model)
    plan = evicting(problem)
    problem = tight(problem, plan)
    limit = problem.platform.memory
    device = SimulatedDevice.of(problem.platform, memory=limit, policy="ideal")
    made = offload(model, plan, problem, device=device, count=True)
    with made:
        expected = gradients(here, model)
        assert made.report.planned
        assert device.memory().peak_allocated == limit
        # The same, but what has left is claimed again at once.
        table = made.programs[0].timetable
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
    expected = gradients(on, copy.deepcopy(made._root))
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
    device.arena = lambda size: sizes.append(size) or arena(size)
    model = made._root
    with made:
        mean(model, on.randn(3, 8)).backward()
        (size,) = sizes
        assert size == made.programs[0].host.pool == made.report.arena_bytes
        assert size & (size - 1), "a power of two would show nothing"
        (room,) = made._movers._made
        assert room._arena.view(0, size).untyped_storage().nbytes() == size
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
        assert len(made._movers._made) == 1
    on.settled(device)
    with pytest.raises(error), made:
        fails()
    model.where = None
    on.settled(device)
    assert all(not module._forward_hooks for module in model.modules())


def test_a_retained_graph_and_a_second_backward_pass(on):
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made._root)
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
    made, device = context(on, model)
    kept = []
    plain = copy.deepcopy(made._root)
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
    with offload(on.put(model), plan, tight(problem, plan), device=device) as made:
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
        offload(model, evicting(problem), problem, device=device)
    # On the CPU this mode has none.
    if on.is_simulated:
        offload(model, evicting(problem), problem)


@pytest.mark.cuda
def test_a_graph_that_is_captured_around_a_step_is_refused_by_name():
    on = On("cuda")
    made, device = context(on, Layers())
    model = made._root
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
    places = made.programs[0].parts.values()
    assert max(map(len, places)) > 1


def test_the_clock_of_operators(on):
    model = Layers(5, _not_contiguous)
    if on.is_simulated:
        followed(on, model, clock="operators")
        return
    with pytest.raises(AssertionError):
        followed(on, model, clock="operators")


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
        made.programs[0].problem, evicting(made.programs[0].problem)
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
    with offload(model, plan, tight(problem, plan), device=device) as made:
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


def test_what_changes_between_the_copy_and_the_release_is_copied_again(on):
    """The capture did not see a change that comes after the copy: the host gets it all the same."""
    change = []

    def function(x):
        if change:
            # Of the storage that the layer before has saved, which does not need it.
            x.detach().add_(change[0])
        return x * 1

    class Unneeded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    model = Layers(6, lambda x: function(Unneeded.apply(x)))
    made, device = context(on, model, room=4096)
    with made:
        expected = gradients(on, model)
        change.append(0.0)
        assert same(gradients(on, model), expected)
    on.settled(device)


# Loops.


def test_several_backward_passes_and_accumulated_gradients(on):
    def run(model, x):
        return sum(model(part).square().mean() for part in (x, -x))

    followed(on, Layers(), run=run)
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made._root)
    for each in (plain, model):
        each.zero_grad()
    with made:
        for turn in range(3):
            for each in (plain, model):
                torch.manual_seed(turn)
                mean(each, on.randn(4, 8)).backward()
            assert made.report.planned
    assert same(parts_of(model)["gradients"].values(), parts_of(plain)["gradients"].values())
    on.settled(device)


class Branching(Layers):
    """Leaves layers out where it is told to."""

    without = None

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            if index != self.without:
                x = torch.sigmoid(layer(x))
        return x


@pytest.mark.parametrize("without", [1, 3])
def test_a_step_that_deviates_in_the_middle(on, without):
    model = Branching(6)
    made, device = context(on, model)
    plain = copy.deepcopy(made._root)
    with made:
        for turn, left_out in enumerate((None, without, None)):
            plain.without = model.without = left_out
            warns = pytest.warns(OffloadWarning, match="never began")
            found = []
            for each in (plain, model):
                each.zero_grad()
                torch.manual_seed(turn)
                with warns if left_out and each is model else warnings.catch_warnings():
                    mean(each, on.randn(4, 8)).backward()
                    if each is model:
                        planned = made.report.planned
                        made._close_run("the test looks")
                found.append([p.grad for p in each.parameters() if p.grad is not None])
            assert same(*found)
            assert planned is (left_out is None)
    on.settled(device)


@pytest.mark.filterwarnings("ignore::offcert.runtime.reports.OffloadWarning")
def test_two_steps_at_once(on):
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made._root)
    expected = [gradients(on, plain, turn) for turn in range(2)]
    with made:
        for _ in range(4):
            losses = []
            for turn in range(2):
                torch.manual_seed(turn)
                losses.append(mean(model, on.randn(4, 8)))
            for loss, theirs in zip(losses, expected, strict=True):
                assert same(torch.autograd.grad(loss, list(model.parameters())), theirs)
            losses.clear()
            del loss
            # Room of its own for each, but no more of it with every turn.
            assert len(made._movers._made) <= 2
        assert same(gradients(on, model), expected[0])
        assert made.report.planned
        assert len(made._movers._made) == 1
    on.settled(device)


def test_evaluation_between(on):
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made._root)
    expected = gradients(on, plain)
    with made:
        torch.manual_seed(0)
        model.zero_grad()
        loss = mean(model, on.randn(4, 8))
        with torch.no_grad():
            model(on.randn(9, 8))
        loss.backward()
        assert same([parameter.grad for parameter in model.parameters()], expected)
        assert made.report.planned
    on.settled(device)


# Threads and streams.


def in_a_thread(function):
    """Call a function in another thread; raise what it raises."""
    raised = []

    def call():
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def test_another_thread_runs_the_backward_pass(on):
    model = Layers()
    made, device = context(on, model)
    expected = gradients(on, copy.deepcopy(made._root))
    with made:
        for _ in range(2):
            torch.manual_seed(0)
            model.zero_grad()
            loss = mean(model, on.randn(4, 8))
            in_a_thread(loss.backward)
            assert same([parameter.grad for parameter in model.parameters()], expected)
            assert made.report.planned
            assert made._hooks.local.backward is None
    on.settled(device)


def test_a_backward_pass_begins_in_one_thread_and_ends_in_another():
    # As on CUDA, if part of the graph is on the CPU; here its parts are called by hand.
    model = Layers()
    made, _ = context(On("simulated"), model)
    with made:
        loss = mean(model, torch.randn(4, 8))
        run, hooks = made._run, made._hooks
        seen = []

        def begin():
            # A nested backward pass may be under way in that thread.
            outer = hooks.local.backward
            run._within.append((hooks.local, outer))
            hooks.local.backward = run
            seen.append(hooks.local)

        in_a_thread(begin)
        run._within.append((hooks.local, None))
        hooks.local.backward = run
        run.leave_backward()
        assert hooks.local.backward is None
        assert seen[0].backward is None
        loss.backward()
        assert made.report.planned


class TwoStreams(SimulatedDevice):
    """Operators run in another stream where the test says so."""

    elsewhere = False

    @property
    def compute(self):
        return self.back if self.elsewhere else super().compute


def test_operators_in_several_streams_are_not_followed_and_that_is_said(on):
    if on.is_simulated:
        problem = captured_problem(Layers())
        device = TwoStreams(rate_out=Fraction(1), rate_back=Fraction(1), link=Link.DUPLEX)

        def elsewhere(x):
            device.elsewhere = True
            y = torch.tanh(x)
            device.elsewhere = False
            return y

    else:
        stream = torch.cuda.Stream()
        device = None

        def elsewhere(x):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = torch.tanh(x)
            torch.cuda.current_stream().wait_stream(stream)
            return y

    model = Layers(5, elsewhere)
    problem = captured_problem(Layers(5, torch.tanh))
    plan = evicting(problem)
    device = device or on.device(problem)
    expected = gradients(on, on.put(copy.deepcopy(model)))
    with offload(on.put(model), plan, tight(problem, plan), device=device) as made:
        with pytest.warns(OffloadWarning, match="operators run in several streams"):
            found = closed(on, made, model)
        assert same(found, expected)
        assert not made.report.planned
    on.settled(device)


@pytest.mark.parametrize("seed", range(3))
def test_random_plans(on, seed):
    chance = random.Random(seed)
    followed(
        on,
        Layers(7, _not_contiguous),
        plan=lambda problem: random_plan(problem.trace, chance),
        link=chance.choice(("simplex", "duplex")),
        rates=(chance.choice((1, 30)), chance.choice((1, 30))),
    )


def test_training_goes_on_in_every_nanosecond_as_forecast_in_a_stream_of_its_own(on):
    """A whole loop in another stream than the default one is followed like any other."""
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made._root)
    expected = [state["gradients"] for _, state in trained(on, plain, steps=2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", OffloadWarning)
        with made:
            if on.is_simulated:
                found = [state["gradients"] for _, state in trained(on, model, steps=2)]
            else:
                with torch.cuda.stream(torch.cuda.Stream()):
                    found = [state["gradients"] for _, state in trained(on, model, steps=2)]
            assert made.report.planned
    for ours, theirs in zip(found, expected, strict=True):
        assert same(ours.values(), theirs.values())
    on.settled(device)
