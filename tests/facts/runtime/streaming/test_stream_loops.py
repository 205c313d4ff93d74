"""Loops, threads and streams of the program itself: on streams."""

import copy
import random
import threading
import warnings

import pytest
import torch

from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.simulated import SimulatedDevice
from support.runtime.captured import random_plan
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
    trained,
)

# Loops.


def test_several_backward_passes_and_accumulated_gradients(on):
    def run(model, x):
        return sum(model(part).square().mean() for part in (x, -x))

    followed(on, Layers(), run=run)
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made.follower.root)
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
def test_a_step_that_leaves_a_layer_out_is_planned(on, without):
    model = Branching(6)
    made, device = context(on, model)
    plain = copy.deepcopy(made.follower.root)
    with made:
        for turn, left_out in enumerate((None, without, without, None)):
            plain.without = model.without = left_out
            found = []
            for each in (plain, model):
                each.zero_grad()
                torch.manual_seed(turn)
                with warnings.catch_warnings(action="error"):
                    mean(each, on.randn(4, 8)).backward()
                    if each is model:
                        planned = made.report.planned
                        made.follower.close_run("the test looks")
                found.append([p.grad for p in each.parameters() if p.grad is not None])
            assert same(*found)
            assert planned
    on.settled(device)


@pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")
def test_two_steps_at_once(on):
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made.follower.root)
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
            assert len(made.follower.mover_maker._made) <= 2
        assert same(gradients(on, model), expected[0])
        assert made.report.planned
        assert len(made.follower.mover_maker._made) == 1
    on.settled(device)


def test_evaluation_between(on):
    model = Layers()
    # It takes more than the plan needs.
    made, device = context(on, model, count=False)
    plain = copy.deepcopy(made.follower.root)
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
    expected = gradients(on, copy.deepcopy(made.follower.root))
    with made:
        for _ in range(2):
            torch.manual_seed(0)
            model.zero_grad()
            loss = mean(model, on.randn(4, 8))
            in_a_thread(loss.backward)
            assert same([parameter.grad for parameter in model.parameters()], expected)
            assert made.report.planned
            assert made.follower.hooks.local.backward is None
    on.settled(device)


def test_a_backward_pass_begins_in_one_thread_and_ends_in_another():
    # As on CUDA, if part of the graph is on the CPU; here its parts are called by hand.
    model = Layers()
    made, _ = context(On("simulated"), model)
    with made:
        loss = mean(model, torch.randn(4, 8))
        run, hooks = made.follower.run, made.follower.hooks
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
        device = TwoStreams()

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
    with follow(on.put(model), plan, tight(problem, plan), FollowOptions(device=device)) as made:
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
        Layers(7, torch.tanh),
        plan=lambda problem: random_plan(problem.trace, chance),
        link=chance.choice(("simplex", "duplex")),
        rates=(chance.choice((1, 30)), chance.choice((1, 30))),
    )


def test_a_whole_loop_in_a_stream_of_its_own(on):
    model = Layers()
    made, device = context(on, model)
    plain = copy.deepcopy(made.follower.root)
    expected = [state["gradients"] for _, state in trained(on, plain, steps=2)]
    # The other stream does not wait for what was done so far.
    device.synchronise()
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
