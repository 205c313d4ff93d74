"""Copies to and from files by way of registered memory: right, unwaited for, gone at the end."""

import copy
import threading
import time
import warnings
from fractions import Fraction

import pytest
import torch
from test_stream_cleanup import hooked
from torch import nn

from offcert.core.platform import Kind
from offcert.runtime.device import host
from offcert.runtime.device.host import ThreadClerk
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.simulated import SimulatedDevice, by_chance, early, late
from offcert.runtime.simulated.arena import SimulatedClerk
from offcert.runtime.streaming.staging import Staging
from offcert.runtime.streaming.step_events import forecast
from support.runtime.stream_steps import On, captured_problem, evicting, tight, trained

pytestmark = pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")

HERE = On("simulated")


class Sigmoids(nn.Sequential):
    """Layers of which all but the first save as many bytes."""

    def __init__(self, count=12):
        torch.manual_seed(0)
        super().__init__(*[x for _ in range(count) for x in (nn.Linear(8, 8), nn.Sigmoid())])


@pytest.fixture(scope="module")
def case():
    model = Sigmoids()
    # 512 bytes each.
    problem = captured_problem(model, 16, 8, duration=600)
    plan = evicting(problem)
    expected = [state for _, state in trained(HERE, copy.deepcopy(model), 16, 8, steps=2)]
    return model, plan, tight(problem, plan), expected


def spilling(case, tmp_path, share=Fraction(1, 2), **options):
    """Return a context half of whose copies have no room in the host's memory, and its device."""
    model, plan, problem, _ = case
    device = SimulatedDevice(problem.platform, **options)
    model = copy.deepcopy(model)
    pool = follow(model, plan, problem, FollowOptions(device=device)).host.pool
    made = follow(
        model,
        plan,
        problem,
        FollowOptions(
            device=device, host_memory=int(share * pool), host_spill=str(tmp_path), timed=True
        ),
    )
    return made, device


def equal(case, made):
    """Train; whether all is as in plain training."""
    model, right = made.follower.root, True
    for turn, state in trained(HERE, model, 16, 8, steps=2):
        for part, found in state.items():
            expected = case[3][turn][part]
            if isinstance(found, dict):
                right &= all(torch.equal(found[name], expected[name]) for name in found)
            else:
                right &= torch.equal(found, expected)
    return right


@pytest.mark.parametrize("adversary", [late, early, by_chance(0), by_chance(1)])
@pytest.mark.parametrize("chunk", [2**36, 192])
def test_what_goes_by_way_of_other_memory_comes_back_as_it_was(case, adversary, chunk, tmp_path):
    made, device = spilling(case, tmp_path, adversary=adversary, chunk=chunk)
    with made:
        assert equal(case, made)
        assert made.report.planned
        host = made.host
        assert device.pinned_bytes == host.held <= host.pool // 2
        assert 0 < host.staging < host.held
        assert host.spilled > 0
    assert device.races == []
    assert device.pinned_bytes == 0
    assert list(tmp_path.iterdir()) == []


def test_nobody_waits_for_a_file_that_is_not_behind(case, tmp_path, monkeypatch):
    made, device = spilling(case, tmp_path)
    program = made.step_plans[0]
    times = forecast(program.problem, program.timetable)
    with made:
        assert equal(case, made)
        assert made.times == times
    # Without memory for it the driver lets whoever hands over wait.
    monkeypatch.setattr(
        "offcert.runtime.plan.host_layout.bytes_for_staging", lambda problem, limit: 0
    )
    made, device = spilling(case, tmp_path)
    with made:
        assert equal(case, made)
        assert made.times.makespan > times.makespan
    assert device.races == []


@pytest.mark.parametrize("share", [Fraction(1, 3), Fraction(9, 10)])
def test_where_a_device_refuses_to_register_memory_copies_go_to_files_by_themselves(
    case, tmp_path, share
):
    whole, _ = spilling(case, tmp_path)
    # Room for nothing, or for the arena and not for what copies go through.
    made, device = spilling(case, tmp_path, pinned=int(share * whole.host.held))
    with warnings.catch_warnings(record=True) as told, made:
        warnings.simplefilter("always")
        assert equal(case, made)
        assert made.report.planned
        assert (device.pinned_bytes > 0) == (share > Fraction(1, 2))
    (message,) = [str(each.message) for each in told]
    assert "may register" in message
    assert device.races == []
    assert device.pinned_bytes == 0


class Deaf(SimulatedClerk):
    """Does not listen to events of some streams."""

    def __init__(self, stream, note, ignored):
        super().__init__(stream, note)
        self.ignored = ignored

    def copy(self, source, target, size, after=()):
        heard = [event for event in after if event.stream.index not in self.ignored]
        return super().copy(source, target, size, heard)


def with_clerks(monkeypatch, kind, ignored):
    make = SimulatedDevice.clerk

    def clerk(self, asked):
        made = make(self, asked)
        return Deaf(made._stream, made._note, ignored) if asked is kind else made

    monkeypatch.setattr(SimulatedDevice, "clerk", clerk)


OUT, WRITER = 1, 3


@pytest.mark.parametrize(("kind", "ignored"), [(Kind.OFFLOAD, OUT), (Kind.PREFETCH, WRITER)])
def test_clerks_must_wait_for_streams_and_for_each_other(
    case, kind, ignored, tmp_path, monkeypatch
):
    with_clerks(monkeypatch, kind, {ignored})
    made, device = spilling(case, tmp_path, Fraction(3, 4))
    with made:
        equal(case, made)
    assert "host" in {race.kind for race in device.races}


def test_the_host_must_wait_before_a_slot_is_read_and_before_it_is_used_again(
    case, tmp_path, monkeypatch
):
    class Hasty(Staging):
        def _slot(self, pieces):
            return self._ring.take(512)[0]

    monkeypatch.setattr("offcert.runtime.streaming.mover_makers.Staging", Hasty)
    made, device = spilling(case, tmp_path, Fraction(3, 4))
    with made:
        equal(case, made)
    assert {race.kind for race in device.races} == {"host"}

    class Unread(Staging):
        def _read(self, pieces):
            found = super()._read(pieces)
            event = self._device.compute.record()
            return type(found)(found.slot, event)

    monkeypatch.setattr("offcert.runtime.streaming.mover_makers.Staging", Unread)
    made, device = spilling(case, tmp_path)
    with made:
        assert not equal(case, made)
    assert "host" in {race.kind for race in device.races}


def test_threads_that_take_their_time(case, tmp_path, monkeypatch):
    def slowly(source, target, after):
        time.sleep(0.002)
        copied(source, target, after)

    copied = host.copy_after
    monkeypatch.setattr(host, "copy_after", slowly)
    # Streams copy at once, so the device's events, all reached, are nothing to threads.
    monkeypatch.setattr(SimulatedDevice, "clerk", lambda _, kind: ThreadClerk(f"slow {kind}"))
    made, device = spilling(case, tmp_path, adversary=early)
    with made:
        assert equal(case, made)
        assert made.report.planned
        assert sum(each.name.startswith("slow") for each in threading.enumerate()) == 2
    assert not any(each.name.startswith("slow") for each in threading.enumerate())
    assert device.pinned_bytes == 0
    assert list(tmp_path.iterdir()) == []


# Errors.


@pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")
@pytest.mark.parametrize("number", range(8))
def test_what_goes_wrong_in_a_thread_is_told_and_nothing_stays(case, number, tmp_path, monkeypatch):
    carry, calls = SimulatedClerk.carry, []

    def fail(self, *args):
        calls.append(None)
        if len(calls) == number + 1:
            raise RuntimeError("the disk is on fire")
        carry(self, *args)

    monkeypatch.setattr(SimulatedClerk, "carry", fail)
    made, device = spilling(case, tmp_path)
    if number < 6:
        # Nothing is lost yet: it is on the device.
        assert train_in(case, made)
        assert made.steps == {"deviating": 1, "planned": 1}
    else:
        with pytest.raises(RuntimeError, match="the disk is on fire"):
            train_in(case, made)
    assert hooked(made.follower.root) == 0
    assert device.pinned_bytes == 0
    assert list(tmp_path.iterdir()) == []
    # The next steps are as if nothing had been.
    made.follower.root.load_state_dict(case[0].state_dict())
    with made:
        assert equal(case, made)
        assert made.report.planned
    assert device.pinned_bytes == 0


def train_in(case, made):
    with made:
        return equal(case, made)


@pytest.mark.parametrize("where", ["copy_out", "copy_back", "clerk"])
def test_an_interrupt_on_the_way_leaves_nothing(case, where, tmp_path, monkeypatch):
    made, device = spilling(case, tmp_path)
    target, name = (SimulatedClerk, "copy") if where == "clerk" else (SimulatedDevice, where)
    original, calls = getattr(target, name), []

    def interrupted(self, *args):
        calls.append(None)
        found = original(self, *args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(target, name, interrupted)
    with made:
        with pytest.raises(KeyboardInterrupt):
            equal(case, made)
        # The context goes on: slots that nobody knows the use of are waited for.
        made.follower.root.load_state_dict(case[0].state_dict())
        assert equal(case, made)
    assert device.races == []
    assert device.pinned_bytes == 0
    assert hooked(made.follower.root) == 0


def test_a_graph_outlives_its_context_with_what_is_in_files(case, tmp_path):
    made, device = spilling(case, tmp_path)
    plain = copy.deepcopy(case[0])
    batch = torch.randn(16, 8)
    with made:
        loss = made.follower.root(batch).square().mean()
    assert device.pinned_bytes == 0
    loss.backward()
    plain(batch).square().mean().backward()
    for found, expected in zip(made.follower.root.parameters(), plain.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)
    assert device.races == []
