"""However a context ends, nothing of it is left; and many steps leave nothing behind."""

import gc
import os
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from offcert.core.errors import InputError, PlanError
from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Move, Plan
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from support.runtime.captured import evict_everything, evicted_bytes, mean_step, problem_of_step


@pytest.fixture(autouse=True, scope="module")
def _quick_collections():
    # What earlier tests have left is gone through once, instead of five times a test. To thaw it
    # would make every collection of later tests go through all that has been loaded since.
    gc.collect()
    gc.freeze()


class Breakable(nn.Module):
    """A network that raises where it is told to."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
        self.error = None
        self.where = None

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = torch.sigmoid(layer(x))
            if self.where == index:
                raise self.error("no")
            if self.where == ("backward", index):
                x.register_hook(self._fail)
        return x

    def _fail(self, gradient):
        raise self.error("no")


def evicting(model, **options):
    problem = problem_of_step(mean_step(model, 4, 8))
    return follow(model, evict_everything(problem), problem, FollowOptions(**options))


def traces(model):
    """Return everything that a context may leave behind."""
    hooks = [
        len(each)
        for module in model.modules()
        for each in (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._forward_hooks_with_kwargs,
            module._forward_pre_hooks_with_kwargs,
            module._forward_hooks_always_called,
            module._backward_hooks,
            module._backward_pre_hooks,
        )
    ]
    hooks += [
        len(each or ())
        for parameter in model.parameters()
        for each in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
    ]
    return {
        "hooks": hooks,
        "saved-tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "files": sorted(os.listdir("/proc/self/fd")),
        "threads": threading.enumerate(),
        "modes": _get_current_dispatch_mode_stack(),
        "grad": torch.is_grad_enabled(),
    }


def train(model, turn=0):
    torch.manual_seed(turn)
    model.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def require_trains_as_plain(made, model, expected):
    """A step under the plan that follows it, and is the plain one."""
    assert all(map(torch.equal, train(model), expected))
    assert made.report.planned, made.report.deviation
    assert made.report.offloaded_bytes > 0


class Interrupted(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("where", [0, 2, ("backward", 0), ("backward", 3)], ids=str)
@pytest.mark.parametrize(
    ("error", "count"), [(ValueError, False), (Interrupted, False), (Interrupted, True)]
)
def test_a_step_that_fails_leaves_nothing_and_the_next_one_follows_its_plan(where, error, count):
    model = Breakable()
    expected = train(model)
    before = traces(model)
    made = evicting(model, count=count)
    with made:
        train(model)
        model.error, model.where = error, where
        for _ in range(2):
            with pytest.raises(error):
                train(model)
        model.where = None
        for _ in range(2):
            require_trains_as_plain(made, model, expected)
    assert made.steps == {"planned": 3, "unfinished": 2}
    gc.collect()
    assert traces(model) == before

    # The same, and the error ends the context.
    model.where = where
    with pytest.raises(error), made:
        train(model)
    model.where = None
    gc.collect()
    assert traces(model) == before
    with made:
        require_trains_as_plain(made, model, expected)
    gc.collect()
    assert traces(model) == before


def _fail():
    raise ArithmeticError


@pytest.mark.parametrize("where", ["loss", "optimiser", "between"])
def test_errors_of_the_loop(where):
    model = Breakable()
    expected = train(model)
    before = traces(model)
    made = evicting(model)

    def run():
        require_trains_as_plain(made, model, expected)
        loss = model(torch.randn(4, 8)).square().mean()
        if where == "loss":
            raise ArithmeticError
        loss.backward()
        if where == "optimiser":
            torch.optim.SGD(model.parameters(), lr=0.1).step(_fail)
        raise ArithmeticError

    with pytest.raises(ArithmeticError), made:
        run()
    gc.collect()
    assert traces(model) == before


def test_a_step_that_fails_between_two_calls_of_the_model():
    model = Breakable()
    step = mean_step(model, 4, 8)
    from offcert.runtime.capture.step import TrainingStep

    def run(model, x):
        return (model(x) * model(-x)).mean()

    problem = problem_of_step(TrainingStep(model, run, step.batch))
    with (
        warnings.catch_warnings(),
        follow(model, evict_everything(problem), problem) as made,
    ):
        warnings.simplefilter("ignore", OffloadWarning)
        # Given up after the first call: the next step is taken for its second half.
        model(torch.randn(4, 8))
        run(model, torch.randn(4, 8)).backward()
        run(model, torch.randn(4, 8)).backward()
        run(model, torch.randn(4, 8)).backward()
        assert made.report.planned
        # An error in a call is seen: the next call begins the next step.
        model.where, model.error = 2, ArithmeticError
        with pytest.raises(ArithmeticError):
            run(model, torch.randn(4, 8))
        model.where = None
        run(model, torch.randn(4, 8)).backward()
        assert made.report.planned


def test_a_backward_pass_that_fails_can_be_run_again():
    model = Breakable()
    expected = train(model)
    failures = [1]

    def fail_once(gradient):
        if failures.pop():
            failures.append(0)
            raise ArithmeticError
        failures.append(0)

    made = evicting(model)
    with made:
        model.zero_grad()
        torch.manual_seed(0)
        hook = model.layers[2].register_forward_hook(lambda m, i, o: _watch(o, fail_once))
        loss = model(torch.randn(4, 8)).square().mean()
        with pytest.raises(ArithmeticError):
            loss.backward(retain_graph=True)
        assert made.follower.hooks.local.backward is None
        model.zero_grad()
        loss.backward()
        hook.remove()
        gradients = [parameter.grad for parameter in model.parameters()]
        assert all(map(torch.equal, gradients, expected))
        assert made.report.finished
        require_trains_as_plain(made, model, expected)


def _watch(output, hook):
    output.register_hook(hook)


def test_hooks_that_an_interrupt_has_left_are_left_later():
    model = Breakable()
    expected = train(model)
    made = evicting(model)
    with made:
        model.error, model.where = Interrupted, 2
        with pytest.raises(Interrupted):
            train(model)
        model.where = None
        # The program's own hooks lie over those that nobody has told of the end.
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            assert all(map(torch.equal, train(model), expected))
        assert "other saved-tensor hooks are active" in made.report.deviation
        with pytest.warns(OffloadWarning, match="other saved-tensor hooks"):
            require_trains_as_plain(made, model, expected)
        require_trains_as_plain(made, model, expected)
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_graphs_that_outlive_the_context():
    model = Breakable()
    expected = train(model)
    before = traces(model)
    made = evicting(model)
    torch.manual_seed(0)
    model.zero_grad()
    with made:
        loss = model(torch.randn(4, 8)).square().mean()
    assert made.steps == {"unfinished": 1}
    with pytest.warns(OffloadWarning, match="the context ended before its backward pass"):
        loss.backward()
    assert all(
        torch.equal(p.grad, gradient)
        for p, gradient in zip(model.parameters(), expected, strict=True)
    )
    assert made.steps == {"deviating": 1}
    assert made.report.finished
    assert made.report.prefetched_bytes + made.report.late_bytes > 0
    del loss
    gc.collect()
    assert traces(model) == before


def test_a_context_that_was_never_used_or_ends_twice():
    model = Breakable()
    before = traces(model)
    made = evicting(model)
    assert traces(model) == before
    with (
        pytest.warns(OffloadWarning, match=r"nothing was moved under the plan \(steps: none\)"),
        made,
    ):
        pass
    made.__enter__()
    with pytest.raises(InputError, match="entered already"):
        made.__enter__()
    made.__exit__(ValueError, ValueError(), None)
    made.__exit__(ValueError, ValueError(), None)
    assert traces(model) == before


def test_nothing_moved_is_said_loudly():
    model = Breakable()
    made = evicting(model)
    kept = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[0].detach()))
    with pytest.warns(OffloadWarning) as told, made:
        train(model)
    (message,) = {str(warning.message) for warning in told}
    assert "nothing was moved under the plan (steps: 1 planned)" in message
    assert "the program itself holds" in message
    # A plan that wants nothing moved is content.
    problem = problem_of_step(mean_step(model, 4, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with follow(model, Plan(), problem) as made:
            train(model)
    assert made.steps == {"planned": 1}


def test_warnings_come_once():
    model = Breakable()
    with warnings.catch_warnings(record=True) as told, evicting(model) as made:
        warnings.simplefilter("always")
        for size in (6, 5, 7, 6):
            model(torch.randn(size, 8)).mean().backward()
        for _ in range(3):
            with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
                train(model)
        train(model)
    assert [str(w.message).split(":")[0] for w in told] == [
        "there is no plan for this step",
        "a step did not follow its plan",
    ]
    assert made.steps == {"unplanned": 4, "deviating": 3, "planned": 1}


def test_strict():
    model = Breakable()
    expected = train(model)
    before = traces(model)
    made = evicting(model, strict=True)
    with made:
        require_trains_as_plain(made, model, expected)
        with pytest.raises(PlanError, match="there is no plan for this step: input 0 is 5x8"):
            model(torch.randn(5, 8))
        with (
            torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
            pytest.raises(PlanError, match="other saved-tensor hooks are active"),
        ):
            train(model)
        # Gradients of the last layer only: the rest of the backward pass never comes.
        loss = model(torch.randn(4, 8)).mean()
        with pytest.raises(PlanError, match="never began"):
            torch.autograd.grad(loss, model.layers[4].weight)
        del loss
        with torch.no_grad():
            model(torch.randn(5, 8))
        require_trains_as_plain(made, model, expected)
    assert made.steps == {"planned": 2, "unplanned": 1, "deviating": 2}
    gc.collect()
    assert traces(model) == before


def test_many_steps_leave_nothing_behind():
    model = Breakable()
    made = evicting(model)
    with made:
        sizes = []
        files = []
        for turn in range(150):
            train(model)
            if turn % 25 == 24:
                gc.collect()
                objects = gc.get_objects()
                sizes.append(
                    (len(objects), sum(issubclass(type(o), torch.Tensor) for o in objects))
                )
                del objects
                files.append(len(os.listdir("/proc/self/fd")))
        assert made.steps == {"planned": 150}
    assert len({tensors for _, tensors in sizes[1:]}) == 1
    assert abs(sizes[-1][0] - sizes[1][0]) < 20
    assert len(set(files)) == 1


def test_steps_free_themselves_without_the_garbage_collector():
    model = Breakable()
    made = evicting(model)
    gc.collect()
    gc.disable()
    try:
        with made:
            loss = model(torch.randn(4, 8)).square().mean()
            run = weakref.ref(made.follower.run)
            files = len(os.listdir("/proc/self/fd"))
            # Abandoned: its room on the host is used again.
            del loss
            for turn in range(5):
                train(model, turn)
                assert run() is None
            assert len(os.listdir("/proc/self/fd")) == files
            last = weakref.ref(made.follower.run)
        assert last() is None
        assert len(os.listdir("/proc/self/fd")) == files - 1
    finally:
        gc.enable()


def test_steps_under_way_at_once_have_their_own_room_on_the_host():
    model = Breakable()
    made = evicting(model)
    with made, warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        expected = [train(model, turn) for turn in range(4)]
        losses = []
        files = len(os.listdir("/proc/self/fd"))
        for turn in range(4):
            torch.manual_seed(turn)
            losses.append(model(torch.randn(4, 8)).square().mean())
        assert len(os.listdir("/proc/self/fd")) == files + 3
        for loss, gradients in zip(losses, expected, strict=True):
            found = torch.autograd.grad(loss, list(model.parameters()))
            assert all(map(torch.equal, found, gradients))
        losses.clear()
        del loss
        train(model)
        assert made.report.planned
        assert len(os.listdir("/proc/self/fd")) == files


def test_steps_that_have_not_offloaded_yet_keep_their_room_on_the_host():
    model = Breakable()
    problem = problem_of_step(mean_step(model, 4, 8))
    trace = problem.trace
    # Everything leaves as late as there is a backward pass to leave in.
    moves = []
    for number, gap in enumerate(trace.gaps):
        moves += [Move(Kind.OFFLOAD, number, gap.after), Move(Kind.PREFETCH, number, gap.after)]
    made = follow(model, Plan(moves), problem)
    with made:
        train(model)
        assert made.report.offloaded_bytes > 0
        files = len(os.listdir("/proc/self/fd"))
        first = model(torch.randn(4, 8)).square().mean()
        second = model(torch.randn(4, 8)).square().mean()
        assert len(os.listdir("/proc/self/fd")) == files + 1
        second.backward()
        assert "the step before has saved are still there" in made.report.deviation
        with pytest.warns(OffloadWarning, match="another step began"):
            first.backward()


def test_files_are_where_they_should_be(tmp_path):
    model = Breakable()
    problem = problem_of_step(mean_step(model, 4, 8))
    plan = evict_everything(problem)
    with follow(model, plan, problem, FollowOptions(directory=str(tmp_path))) as made:
        train(model)
        links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        assert any(link.startswith(str(tmp_path)) for link in links)
        # Nameless: whatever happens to the process, nothing stays on the disk.
        assert os.listdir(tmp_path) == []
        assert made.report.offloaded_bytes == evicted_bytes(problem, plan)
