"""Copies to and from files by way of registered memory: right, unwaited for, gone at the end."""

import copy
import random
import threading
import time
import warnings
from fractions import Fraction

import pytest
import torch
from stream_steps import On, captured_problem, evicting, tight, trained
from test_stream_cleanup import hooked
from torch import nn

from offcert.core.plan import Kind
from offcert.runtime.device import clerk
from offcert.runtime.device.clerk import ThreadClerk
from offcert.runtime.device.simulated import SimulatedDevice, by_chance, early, late
from offcert.runtime.device.simulated.clerk import SimulatedClerk
from offcert.runtime.offload import OffloadWarning, offload
from offcert.runtime.streaming.forecast import forecast
from offcert.runtime.streaming.ring import Ring
from offcert.runtime.streaming.staging import Staged, Staging

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
    device = SimulatedDevice.of(problem.platform, **options)
    model = copy.deepcopy(model)
    pool = offload(model, plan, problem, device=device).host.pool
    made = offload(
        model,
        plan,
        problem,
        device=device,
        host_memory=int(share * pool),
        host_spill=str(tmp_path),
        timed=True,
    )
    return made, device


def equal(case, made):
    """Train; whether all is as in plain training."""
    model, right = made._root, True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
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
    program = made.programs[0]
    times = forecast(program.problem, program.timetable)
    with made:
        assert equal(case, made)
        assert made.times == times
    # Without memory for it the driver lets whoever hands over wait.
    monkeypatch.setattr("offcert.runtime.host_budget._staging", lambda problem, limit: 0)
    made, device = spilling(case, tmp_path)
    with made:
        assert equal(case, made)
        assert made.times.makespan > times.makespan
    assert device.races == []


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

    monkeypatch.setattr("offcert.runtime.movers.Staging", Hasty)
    made, device = spilling(case, tmp_path, Fraction(3, 4))
    with made:
        equal(case, made)
    assert {race.kind for race in device.races} == {"host"}

    class Unread(Staging):
        def _read(self, pieces):
            found = super()._read(pieces)
            event = self._device.compute.record()
            return type(found)(found.slot, event)

    monkeypatch.setattr("offcert.runtime.movers.Staging", Unread)
    made, device = spilling(case, tmp_path)
    with made:
        assert not equal(case, made)
    assert "host" in {race.kind for race in device.races}


class Threaded(SimulatedDevice):
    """Copies of streams are done at once; those to and from files by threads, which are slow."""

    def clerk(self, kind):
        return ThreadClerk(f"slow {kind}")


def test_threads_that_take_their_time(case, tmp_path, monkeypatch):
    def slowly(source, target, after):
        time.sleep(0.002)
        copied(source, target, after)

    copied = clerk._copy
    monkeypatch.setattr(clerk, "_copy", slowly)
    # The device's events have all been reached, so it is nothing to threads.
    monkeypatch.setattr(SimulatedDevice, "of", Threaded.of)
    made, device = spilling(case, tmp_path, adversary=early)
    with made:
        assert equal(case, made)
        assert made.report.planned
        assert sum(each.name.startswith("slow") for each in threading.enumerate()) == 2
    assert not any(each.name.startswith("slow") for each in threading.enumerate())
    assert device.pinned_bytes == 0
    assert list(tmp_path.iterdir()) == []


# Errors.


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
    with pytest.raises(RuntimeError, match="the disk is on fire"):
        train_in(case, made)
    assert hooked(made._root) == 0
    assert device.pinned_bytes == 0
    assert list(tmp_path.iterdir()) == []
    # The next steps are as if nothing had been.
    made._root.load_state_dict(case[0].state_dict())
    with made:
        assert equal(case, made)
        assert made.report.planned
    assert device.pinned_bytes == 0


def train_in(case, made):
    with made:
        equal(case, made)


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
        made._root.load_state_dict(case[0].state_dict())
        assert equal(case, made)
    assert device.races == []
    assert device.pinned_bytes == 0
    assert hooked(made._root) == 0


def test_a_graph_outlives_its_context_with_what_is_in_files(case, tmp_path):
    made, device = spilling(case, tmp_path)
    plain = copy.deepcopy(case[0])
    batch = torch.randn(16, 8)
    with made:
        loss = made._root(batch).square().mean()
    assert device.pinned_bytes == 0
    loss.backward()
    plain(batch).square().mean().backward()
    for found, expected in zip(made._root.parameters(), plain.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)
    assert device.races == []


# The parts.


def test_whoever_comes_to_bytes_of_a_ring_waits_for_who_was_there_last():
    chance = random.Random(0)
    for size in (1, 5, 64, 100):
        ring, last = Ring(size), {}
        for turn in range(300):
            wanted = chance.randint(1, size)
            foreseen = ring.gone(wanted)
            slot, gone = ring.take(wanted)
            assert gone == foreseen
            assert 0 <= slot.begin <= slot.begin + wanted <= size
            at = range(slot.begin, slot.begin + wanted)
            assert {each.used for each in gone} == {last[byte] for byte in at if byte in last}
            # An event, as far as the ring is concerned.
            slot.used = turn
            last |= dict.fromkeys(at, turn)


def _copies(device, size, order=(), count=4, each=100, directory=None):
    """Return staging, storages in a file, and their bytes on the device."""
    file = device.file(count * 128, directory)
    rows = [Staged(n, file, n * 128, each) for n in range(count)]
    data = [torch.full((each,), n + 1, dtype=torch.uint8) for n in range(count)]
    return Staging(device, size, [[rows[n]] for n in order]), rows, data, file


def _device(**options):
    return SimulatedDevice(rate_out=Fraction(1), rate_back=Fraction(1), **options)


@pytest.mark.parametrize("size", [128, 192, 256, 512, 1024])
@pytest.mark.parametrize("order", [(3, 2, 1, 0), (0, 1, 2, 3), (2, 2, 0)])
def test_any_order_and_any_room(size, order):
    for adversary in (late, early, by_chance(5)):
        device = _device(adversary=adversary)
        staging, rows, data, file = _copies(device, size, order)
        staging.begin()
        for row, bytes_ in zip(rows, data, strict=True):
            device.out.wait(device.compute.record())
            staging.send([(row, bytes_)])
            device.compute.wait(device.out.record())
        for number in (3, 0, 2, 2, 1):
            back = device.allocate(100)
            device.back.wait(device.compute.record())
            staging.bring([(rows[number], back)])
            device.compute.wait(device.back.record())
            assert back.eq(number + 1).all()
        # What is written anew is read anew, whatever has been read ahead.
        data[1].fill_(77)
        device.compute.ran(1)
        device.out.wait(device.compute.record())
        staging.send([(rows[1], data[1])])
        device.compute.wait(device.out.record())
        back = device.allocate(100)
        device.back.wait(device.compute.record())
        staging.bring([(rows[1], back)])
        device.compute.wait(device.back.record())
        assert back.eq(77).all()
        staging.settle()
        device.synchronise()
        staging.close()
        file.close()
        assert device.races == []
        assert device.pinned_bytes == 0


def test_what_comes_back_next_is_read_before_it_is_asked_for():
    device = _device(adversary=early)
    staging, rows, data, _ = _copies(device, 1024, (3, 2, 1, 0))
    staging.begin()
    for row, bytes_ in zip(rows, data, strict=True):
        device.out.wait(device.compute.record())
        staging.send([(row, bytes_)])
    assert list(staging._ahead) == [(3,), (2,), (1,), (0,)]
    back = device.allocate(100)
    device.back.wait(device.compute.record())
    staging.bring([(rows[3], back)])
    assert list(staging._ahead) == [(2,), (1,), (0,)]
    # One that is not in its order lets those before it go.
    staging.bring([(rows[1], back)])
    assert list(staging._ahead) == [(0,)]


def sent(device, staging, row, data):
    device.out.wait(device.compute.record())
    staging.send([(row, data)])


def brought(device, staging, row):
    """Return what comes back."""
    back = device.allocate(row.size)
    device.back.wait(device.compute.record())
    staging.bring([(row, back)])
    device.compute.wait(device.back.record())
    return back


def test_what_was_read_ahead_is_not_taken_for_what_is_written_anew_or_for_what_lay_there():
    device = _device(adversary=early)
    staging, rows, data, _ = _copies(device, 512, (1,))
    staging.begin()
    sent(device, staging, rows[1], data[1])
    assert list(staging._ahead) == [(1,)]
    data[1].fill_(77)
    device.compute.ran(1)
    sent(device, staging, rows[1], data[1])
    assert brought(device, staging, rows[1]).eq(77).all()
    # The next step begins as the first one did.
    staging.begin()
    sent(device, staging, rows[1], data[1])
    slot = staging._ahead[1,].slot
    for n in (0, 2, 3, 0):
        sent(device, staging, rows[n], data[n])
    # Others have been in its slot meanwhile; it has been read anew.
    assert staging._ahead[1,].slot is not slot
    assert brought(device, staging, rows[1]).eq(77).all()
    staging.settle()
    assert device.races == []


def test_bytes_of_a_file_are_written_after_they_have_been_read():
    device = _device()
    staging, rows, data, file = _copies(device, 1024, (0,))
    sent(device, staging, rows[0], data[0])
    # Read, but never asked for.
    assert list(staging._ahead) == [(0,)]
    sent(device, staging, Staged("other", file, rows[0].offset, 100), data[1])
    staging.settle()
    assert device.races == []


def test_out_waits_for_back_where_one_comes_to_a_slot_of_the_other():
    device = _device()
    staging, rows, data, _ = _copies(device, 128)
    sent(device, staging, rows[0], data[0])
    device.compute.wait(device.out.record())
    back = device.allocate(100)
    device.back.wait(device.compute.record())
    staging.bring([(rows[0], back)])
    sent(device, staging, rows[1], data[1])
    device.compute.wait(device.out.record())
    device.compute.wait(device.back.record())
    assert back.eq(1).all()
    assert device.races == []
