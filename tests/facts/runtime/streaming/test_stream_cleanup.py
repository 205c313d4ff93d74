"""However a context ends, or is never ended, nothing stays hooked, registered or counted."""

import copy
import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from offcert.core.errors import OffcertError, PlanError
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.simulated import SimulatedDevice
from support.runtime.captured import evict_everything, problem_of_step
from support.runtime.stream_steps import Layers, On, captured_problem, evicting, mean, tight

pytestmark = pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")


def context(on, model, **options):
    problem = captured_problem(model)
    plan = evicting(problem)
    limited = tight(problem, plan)
    device = on.device(limited)
    return follow(on.put(model), plan, limited, FollowOptions(device=device, **options)), device


def hooked(model: nn.Module) -> int:
    return sum(
        len(each)
        for module in model.modules()
        for each in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    ) + sum(
        len(each or ())
        for parameter in model.parameters()
        for each in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
    )


def gradients(on, model, turn=0):
    torch.manual_seed(turn)
    model.zero_grad()
    mean(model, on.randn(4, 8)).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def same(first, second):
    return all(map(torch.equal, first, second))


def plain(on, model):
    return gradients(on, on.put(copy.deepcopy(model)))


# Graphs that outlive the context.


@pytest.mark.parametrize("dropped", [True, False])
def test_a_graph_that_outlives_the_context_is_right_and_holds_no_pinned_memory(on, dropped):
    model = Layers()
    expected = plain(on, model)
    made, device = context(on, model)
    torch.manual_seed(0)
    if dropped:
        made.__enter__()
        loss = mean(model, on.randn(4, 8))
        assert made.report.offloaded_bytes > 0
        del made
    else:
        with made:
            loss = mean(model, on.randn(4, 8))
    # What is away has moved into ordinary memory.
    on.settled(device)
    assert hooked(model) == 0
    loss.backward()
    assert same([parameter.grad for parameter in model.parameters()], expected)
    on.settled(device)


def test_a_strict_step_that_outlives_its_context_raises(on):
    made, device = context(on, Layers(), strict=True)
    with made:
        loss = mean(made.follower.root, on.randn(4, 8))
    with pytest.raises(PlanError, match="the context ended before its backward pass"):
        loss.backward()
    on.settled(device)


def test_a_graph_that_is_retained_and_used_after_the_context(on):
    model = Layers()
    expected = plain(on, model)
    # What is retained takes more than the plan needs.
    made, device = context(on, model, count=False)
    torch.manual_seed(0)
    with made:
        loss = mean(model, on.randn(4, 8))
        loss.backward(retain_graph=True)
        assert made.report.planned
    model.zero_grad()
    loss.backward()
    assert same([parameter.grad for parameter in model.parameters()], expected)
    on.settled(device)


# Contexts that nobody leaves.


@pytest.mark.parametrize("count", [False, True])
@pytest.mark.parametrize("when", ["before a step", "in a step", "after a step"])
def test_a_context_that_is_dropped_undoes_what_it_did(on, when, count):
    if count and not on.is_simulated:
        pytest.skip("bytes are counted on the CPU")
    model = Layers()
    expected = plain(on, model)
    modes = _get_current_dispatch_mode_stack()
    made, device = context(on, model, count=count)
    made.__enter__()
    assert hooked(model) > 0
    if when == "in a step":
        loss = mean(model, on.randn(4, 8))
        del loss
    elif when == "after a step":
        assert same(gradients(on, model), expected)
        assert made.report.planned
    gone = weakref.ref(made)
    del made
    # At once: not only when the garbage collector comes by.
    assert gone() is None
    assert hooked(model) == 0
    assert _get_current_dispatch_mode_stack() == modes
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    on.settled(device)
    assert same(gradients(on, model), expected)


def test_a_context_on_the_cpu_that_is_dropped_undoes_what_it_did():
    model = Layers()
    problem = problem_of_step(TrainingStep(model, mean, torch.randn(4, 8)))
    made = follow(model, evict_everything(problem), problem).__enter__()
    mean(model, torch.randn(4, 8)).backward()
    assert made.report.offloaded_bytes > 0
    del made
    assert hooked(model) == 0


def test_a_context_within_a_generator_that_is_dropped(on):
    model = Layers()
    made, device = context(on, model)

    def loop():
        with made:
            while True:
                yield gradients(on, model)

    steps = loop()
    next(steps)
    next(steps)
    steps.close()
    assert hooked(model) == 0
    on.settled(device)


# Errors of the device and of the host.


def test_a_device_that_fails_as_the_context_ends_gives_its_arenas_back():
    here = On("simulated")
    made, device = context(here, Layers())
    synchronise = device.synchronise

    def fails():
        synchronise()
        raise RuntimeError("lost")

    made.__enter__()
    gradients(here, made.follower.root)
    device.synchronise = fails
    with pytest.warns(OffloadWarning, match="offcert has failed: RuntimeError: lost"):
        made.__exit__(None, None, None)
    assert device.pinned_bytes == 0
    assert hooked(made.follower.root) == 0


def test_a_host_with_too_little_memory_says_so_and_nothing_is_left(monkeypatch):
    def refuses(size, *order):
        raise OffcertError(f"no room for {size} bytes")

    model = Layers()
    problem = captured_problem(model)
    plan = evicting(problem)
    here = On("simulated")
    expected = plain(here, model)
    device = SimulatedDevice(problem.platform)
    monkeypatch.setattr(device, "arena", refuses)
    made = follow(model, plan, problem, FollowOptions(device=device))
    with pytest.warns(OffloadWarning, match="no room for"), made:
        assert same(gradients(here, model), expected)
    assert made.steps == {"unplanned": 1}
    assert "no room for" in made.report.deviation
    assert hooked(model) == 0
    assert device.pinned_bytes == 0


def test_memory_that_a_device_refuses_to_register_is_used_as_it_is_and_that_is_said_once():
    model = Layers()
    expected = plain(On("simulated"), model)
    problem = captured_problem(model)
    device = SimulatedDevice(problem.platform, pinned=100)
    with (
        warnings.catch_warnings(record=True) as told,
        follow(model, evicting(problem), problem, FollowOptions(device=device)) as made,
    ):
        warnings.simplefilter("always")
        for _ in range(3):
            # The graph of a step that is not over keeps its room, so that another is made.
            held = mean(model, torch.randn(4, 8))
            assert same(gradients(On("simulated"), model), expected)
            # What it has saved is still there, too, which no plan counts.
            assert "that the step before has saved are still there" in made.report.deviation
            assert made.report.offloaded_bytes > 0
            del held
        assert device.pinned_bytes == 0
    (message,) = [str(each.message) for each in told if "register" in str(each.message)]
    assert "may register 100 bytes of the host's memory" in message
    assert "copies go through other memory, and the host waits for each of them" in message
    assert device.races == []
    assert hooked(model) == 0


@pytest.mark.parametrize("call", ["copy_out", "copy_back"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("after", [False, True])
def test_an_error_or_an_interrupt_in_a_copy(call, error, after):
    """The program catches it and goes on: what was left undone is not relied upon."""
    here = On("simulated")
    model = Layers()
    expected = plain(here, model)
    made, device = context(here, model)
    original, calls = getattr(device, call), []

    def fails(parts):
        calls.append(len(parts))
        if len(calls) != 2:
            return original(parts)
        if after:
            original(parts)
        raise error("in the midst of it")

    with made:
        setattr(device, call, fails)
        if error is KeyboardInterrupt:
            with pytest.raises(error):
                gradients(here, model)
        else:
            with pytest.warns(OffloadWarning, match="offcert has failed: RuntimeError: in the"):
                assert same(gradients(here, model), expected)
        assert error.__name__ in made.report.deviation
        gc.collect()
        assert same(gradients(here, model), expected)
        assert made.report.planned
    assert device.races == []
    assert device.pinned_bytes == 0


def test_an_interrupt_in_a_hook_that_the_model_swallows():
    here = On("simulated")

    class Swallows(Layers):
        def forward(self, x):
            for layer in self.layers:
                try:
                    y = layer(x)
                except KeyboardInterrupt:
                    with warnings.catch_warnings():
                        y = torch.nn.functional.linear(x, layer.weight, layer.bias)
                x = torch.sigmoid(y)
            return x

    model = Swallows()
    expected = plain(here, model)
    made, device = context(here, model)
    original, calls = device.copy_out, []

    def fails(parts):
        calls.append(parts)
        if len(calls) == 2:
            raise KeyboardInterrupt
        original(parts)

    with made:
        device.copy_out = fails
        assert same(gradients(here, model), expected)
        assert not made.report.planned
        # Nothing more has left.
        assert len(calls) == 2
        device.copy_out = original
        assert same(gradients(here, model), expected)
        assert made.report.planned
    assert device.races == []
    assert device.pinned_bytes == 0


def test_many_steps_leave_nothing_behind(on):
    model = Layers()
    made, device = context(on, model)
    with made:
        sizes = []
        for turn in range(40):
            gradients(on, model, turn)
            if turn % 10 == 9:
                gc.collect()
                objects = gc.get_objects()
                tensors = sum(issubclass(type(each), torch.Tensor) for each in objects)
                sizes.append((tensors, len(objects), device.memory().allocated))
                del objects
        assert made.steps == {"planned": 40}
    assert len({(tensors, allocated) for tensors, _, allocated in sizes[1:]}) == 1
    # The collector of newer Pythons stops counting tuples, a few at a time: fewer are no leak.
    assert sizes[-1][1] - sizes[1][1] < 20
    on.settled(device)


def test_steps_on_streams_free_themselves_without_the_garbage_collector(on):
    model = Layers()
    made, device = context(on, model)
    gc.collect()
    gc.disable()
    try:
        with made:
            loss = mean(model, on.randn(4, 8))
            run, mover = weakref.ref(made.follower.run), weakref.ref(made.follower.run._mover)
            del loss
            for turn in range(3):
                gradients(on, model, turn)
                assert run() is None
                assert mover() is None
            assert len(made.follower.mover_maker._made) == 1
    finally:
        gc.enable()
    on.settled(device)


def test_warnings_are_told_where_the_program_is():
    made, _ = context(On("simulated"), Layers())
    with pytest.warns(OffloadWarning, match="nothing was moved") as told, made:
        pass
    assert told[0].filename == __file__
