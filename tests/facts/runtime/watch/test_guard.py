"""Whatever goes wrong in our own code in the midst of a user's step, the training goes on."""

from __future__ import annotations

import ast
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import offcert
from offcert.core.errors import PlanError
from offcert.runtime.follow.follower import Follower
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.watch.guard import GUARDED, Guard, RecomputeError
from offcert.training import host_room, search
from offcert.training import offload as make_plans
from support.runtime.counted_search import counted_search

# Programs and dispatch modes of their own: no step of a user's goes through them.
APART = {"stages", "zoo", "compiled"}
ROOT = Path(offcert.__file__).parent

MAKES = {"memory": "5%", "time_limit": 0.5, "hardware": "v100-pcie", "background": False}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.second(self.drop(self.first(x).tanh()))


def network():
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(2)], nn.Linear(16, 4))


def trained(model, steps=3):
    """Train; return the losses and what has become of the model."""
    found = []
    for turn in range(steps):
        torch.manual_seed(turn)
        loss = model(torch.randn(32, 16)).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        found.append(loss.detach())
    return [*found, *model.state_dict().values()]


PLANS = {
    "moves": {"recompute": "none"},
    # Where nothing has room on the host, all that does not stay is computed again.
    "runs again": {"memory": "60%", "host_memory": 1},
    # Studied and timed while the entrance fails.
    "made on the way": None,
}


@pytest.fixture(scope="module")
def certificates():
    found = {}
    for name, options in PLANS.items():
        if options is not None:
            model = network()
            with ended_by_steps(), make_plans(model, "auto", **MAKES | options) as training:
                trained(model, 2)
            found[name] = training.certificates
    return found


@contextmanager
def ended_by_steps():
    """End searches after steps: which plan is found must not say how fast this machine is."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (search, host_room):
            patch.setattr(module, "certify", counted_search)
        yield


def context(certificates, which, model, **options):
    if PLANS[which] is None:
        return make_plans(model, "auto", **MAKES, **options)
    return follow(model, certificates[which], options=FollowOptions(**options))


class OursError(Exception):
    """What no user is to see."""


@contextmanager
def failing(name, after, calls=1):
    """Let an entrance fail from its nth call on, before it has done what it does or after."""
    cells = dict(zip(GUARDED[name].__code__.co_freevars, GUARDED[name].__closure__, strict=True))
    cell = cells["function"]
    function, made = cell.cell_contents, []

    def fails(self, *args, **kwargs):
        made.append(1)
        if len(made) < calls:
            return function(self, *args, **kwargs)
        if after:
            function(self, *args, **kwargs)
        raise OursError("out of luck")

    cell.cell_contents = fails
    try:
        yield made
    finally:
        cell.cell_contents = function


def reached(certificates, which):
    """Return the entries that training by a plan comes through."""
    found, cells = set(), {}
    for name, each in GUARDED.items():
        cell = dict(zip(each.__code__.co_freevars, each.__closure__, strict=True))["function"]
        cells[name] = cell, cell.cell_contents

    def noting(name, function):
        def call(self, *args, **kwargs):
            found.add(name)
            return function(self, *args, **kwargs)

        return call

    try:
        for name, (cell, function) in cells.items():
            cell.cell_contents = noting(name, function)
        model = network()
        with context(certificates, which, model, count=which != "made on the way"):
            trained(model)
    finally:
        for cell, function in cells.values():
            cell.cell_contents = function
    return found


# Those that training by the plans of these tests does not come through.
ELSEWHERE = {
    # Only lines of calls that the program makes itself.
    "offcert.runtime.segments.lines.LineCall._begin",
}


def test_training_comes_through_every_entrance(certificates):
    found = {name for which in PLANS for name in reached(certificates, which)}
    assert set(GUARDED) - found == ELSEWHERE


# Within a segment that runs again there is nothing to fall back on: what it makes is needed.
NEEDED = {
    "offcert.runtime.segments.attach._Wrapped.frame",
    "offcert.runtime.segments.frame.SegmentFrame.start",
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("which", PLANS)
def test_training_goes_on_whichever_entrance_fails(certificates, which, after):
    expected = trained(network())
    for name in sorted(reached(certificates, which)):
        for calls in (1,) if after or PLANS[which] is None else (1, 7):
            model = network()
            made = context(certificates, which, model, count=which == "moves")
            with warnings.catch_warnings(record=True) as told, failing(name, after, calls) as found:
                warnings.simplefilter("always")
                try:
                    with made:
                        assert all(map(torch.equal, trained(model), expected)), name
                except RecomputeError:
                    assert name in NEEDED
                    assert calls > 1
            require_told(name, told, len(found) >= calls)
            if len(found) >= calls == 1 and which != "made on the way":
                assert made.report.deviation is not None, name
            require_nothing_stays(model)
            if PLANS[which] is not None and not after and not refused(made):
                with made:
                    trained(model)
                    assert made.report.planned, name


def require_told(name, told, failed):
    """The failure is told of once, and nothing but what offcert says is heard."""
    said = [str(each.message) for each in told]
    assert all(each.category is OffloadWarning for each in told), said
    times = sum(each.startswith("offcert has failed: OursError: out of luck") for each in said)
    assert times == failed, (name, said)


def require_nothing_stays(model):
    assert not any(each._forward_hooks for each in model.modules())
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert torch.utils._python_dispatch._get_current_dispatch_mode_stack() == []


def refused(made):
    """Whether segments have been refused meanwhile: plans are not followed to the end then."""
    return made.follower.segments is not None and bool(made.follower.segments.refused)


@pytest.mark.parametrize("which", PLANS)
def test_who_is_strict_is_told_by_an_error(certificates, which):
    for name in sorted(reached(certificates, which)):
        if name.endswith(("__del__", "_is_dead")):
            # Nobody hears of errors there.
            continue
        model = network()
        made = context(certificates, which, model, count=which == "moves", strict=True)
        with failing(name, False) as found:
            raised = None
            try:
                with made:
                    trained(model)
            except PlanError as error:
                raised = error
        if found:
            assert raised is not None, name
            assert "out of luck" in str(raised), name
        require_nothing_stays(model)


def test_a_device_without_room_is_no_reason_to_stop(certificates, monkeypatch):
    def full(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr("offcert.runtime.device.host.reserve", full)
    model, expected = network(), trained(network())
    made = follow(model, certificates["moves"])
    with pytest.warns(OffloadWarning, match="no room for .* the disk is full"), made:
        assert all(map(torch.equal, trained(model), expected))
    assert made.steps == {"unplanned": 3}
    made = follow(network(), certificates["moves"], options=FollowOptions(strict=True))
    with pytest.raises(PlanError, match="the disk is full"), made:
        trained(made.follower.root)


class FailsAtTheEnd(Follower):
    def detach(self):
        raise IndexError("list index out of range")


def test_the_end_of_a_context_that_fails(certificates, monkeypatch):
    monkeypatch.setattr("offcert.runtime.follow.offload.Follower", FailsAtTheEnd)
    model = network()
    made = follow(model, certificates["moves"])
    with pytest.warns(OffloadWarning, match="offcert has failed: IndexError"), made:
        trained(model, 1)
    # The program's own error is the one that is seen.
    made = follow(model, certificates["moves"], options=FollowOptions(strict=True))
    with pytest.raises(KeyError, match="theirs"), made:
        raise KeyError("theirs")
    with pytest.raises(PlanError, match="offcert has failed: IndexError"), made:
        trained(model, 1)
    assert not any(each._forward_hooks for each in model.modules())


def test_bytes_that_are_lost_are_an_error(certificates, monkeypatch):
    from offcert.runtime.streaming.copies import HostCopies

    def gone(self, entry, data):
        raise OSError("the disk is gone")

    monkeypatch.setattr(HostCopies, "read", gone)
    model = network()
    made = follow(model, certificates["moves"])
    with warnings.catch_warnings(action="ignore"), pytest.raises(OSError, match="gone"), made:
        trained(model, 1)


def test_what_is_meant_for_the_user_passes():
    guard = Guard(lambda error, reason, session: None)
    for error in (RecomputeError(), UserWarning(), torch.utils.checkpoint.CheckpointError()):
        assert guard.lets_pass(error)
    assert not guard.lets_pass(ValueError())
    assert Guard().lets_pass(ValueError())


# What PyTorch is given.

GIVES = {
    "register_forward_pre_hook",
    "register_forward_hook",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "register_optimizer_step_post_hook",
    "queue_callback",
    "watch_gradient",
}


def given():
    """Yield file, and what PyTorch is given there to call while a step runs."""
    for path in sorted((ROOT / "runtime").rglob("*.py")) + sorted(
        (ROOT / "training").rglob("*.py")
    ):
        if APART & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in GIVES:
                yield str(path.relative_to(ROOT)), ast.unparse(node.args[0])


def test_everything_that_pytorch_is_given_is_guarded():
    # By how it is written, the entrance behind it.
    known = {
        ("runtime/capture/recorder.py", "self._exclude_gradient"): "Recorder._exclude_gradient",
        ("runtime/watch/events.py", "_GradientTick(self, event)"): "_GradientTick.__call__",
        ("runtime/watch/events.py", "_Ending(self)"): "_Ending.__call__",
        ("runtime/follow/clock.py", "GradientTurns(self, operations)"): "GradientTurns.__call__",
        # Of the model itself, of its modules.
        ("runtime/watch/hooks.py", "enter"): ("UncopiedHook._tell", "EnterHook._tell"),
        ("runtime/watch/hooks.py", "leave"): ("UncopiedHook._tell", "LeaveHook._tell"),
        ("runtime/follow/counting.py", "excluding"): "UncopiedHook._tell",
        ("runtime/segments/attach.py", "hook.enter"): "UncopiedHook._tell",
        ("runtime/segments/attach.py", "hook.leave"): "UncopiedHook._tell",
        ("runtime/watch/module_hooks.py", "trains"): "UncopiedHook._tell",
        ("runtime/watch/module_hooks.py", "stepped"): "UncopiedHook._tell",
    }
    # Their own programs, which raise what goes wrong; and what passes on what it is given.
    apart = {
        ("runtime/watch/events.py", "hook"),
        ("runtime/workloads/standard_step.py", "_require_tokens"),
    }
    found = set(given())
    assert found - apart == set(known)
    names = {name.rsplit(".", 2)[-2] + "." + name.rsplit(".", 1)[-1] for name in GUARDED}
    assert {
        each for of in known.values() for each in (of if isinstance(of, tuple) else [of])
    } <= names
    assert {"SavedStorages.pack", "SavedStorages._told", "LiveBytes._before"} <= names
