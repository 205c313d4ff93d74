"""Steps while the arena is still being registered: the same numbers, within the same limit."""

import copy
import logging
import threading
import warnings
from dataclasses import replace

import pytest
import torch

from offcert.questions.schedule.plan import Plan
from offcert.runtime.device.interface import Pinning
from offcert.runtime.device.pinned import PinnedArena
from offcert.runtime.device.registration import RegistrationError
from offcert.runtime.follow.accounts import Accounts
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.step_plan import step_plan
from offcert.runtime.simulated import SimulatedDevice
from offcert.runtime.simulated.arena import PinnedBudget, SimulatedArena
from support.runtime.stream_steps import (
    Layers,
    On,
    captured_problem,
    evicting,
    same,
    tight,
)

PAGE = 4096
# Each storage takes a quarter of a chunk.
SHAPE = (32, 8)


class Budget(PinnedBudget):
    """Registers in the background once it is let to, or refuses to."""

    def __init__(self, known, refused):
        super().__init__(None, "slow")
        self.known, self.turn, self.refused = known, threading.Semaphore(0), refused

    def begin_thread(self):
        assert self.turn.acquire(timeout=10)
        if self.refused:
            raise RegistrationError("the device takes no more")


class Slow(SimulatedDevice):
    """Registers in the background, as CUDA does."""

    refused = False
    orders = ()

    def arena(self, size, order=None):
        self.budget = Budget(self._budget.known, self.refused)
        self.orders = (*self.orders, order)
        memory = PinnedArena(size, self.budget, chunk=PAGE, order=order)
        self.inner = memory
        arena = SimulatedArena(memory, 5, self._closing)
        self._arenas.add(arena)
        return arena

    def pinned(self):
        """Wait until all chunks are registered or refused."""
        for thread in self.inner._finalizer.peek()[1].__self__._threads:
            thread.join(timeout=10)


def slow(model, on, **options):
    problem = captured_problem(model, *SHAPE)
    plan = evicting(problem)
    limited = tight(problem, plan)
    device = Slow(limited.platform, memory=limited.platform.memory)
    return follow(model, plan, limited, FollowOptions(device=device, count=True, **options)), device


def steps(on, model, turn):
    torch.manual_seed(turn)
    model.zero_grad()
    model(on.randn(*SHAPE)).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_steps_follow_their_plan_while_the_arena_is_registered(caplog):
    on, model = On("simulated"), Layers(16)
    plain = copy.deepcopy(model)
    made, device = slow(model, on)
    with made, caplog.at_level(logging.INFO, logger="offcert.training"):
        for turn in range(4):
            expected = steps(on, plain, turn)
            assert same(steps(on, model, turn), expected)
            report = made.report
            assert report.planned, report.deviation
            assert report.peak <= report.limit
            assert report.late_bytes == 0
            pinning = report.pinning
            assert pinning.size == report.arena_bytes > 3 * PAGE
            if turn < 2:
                # The first chunk only: copies to and from the others were waited for.
                assert pinning.registered == PAGE
                assert device.pinned_bytes == PAGE
                assert f"{PAGE / 2**20:.2f} MiB pinned in" in str(report)
            if turn == 1:
                device.budget.turn.release(100)
                device.pinned()
            if turn == 3:
                assert pinning.registered == pinning.size == device.pinned_bytes
    said = [each.message for each in caplog.records if each.message.startswith("pinned ")]
    assert len(said) == 1
    assert "while steps ran" in said[0]
    on.settled(device)


def test_a_step_that_is_timed_waits_for_all_of_its_arena():
    on, model = On("simulated"), Layers(16)
    made, device = slow(model, on, timed=True)
    letting = threading.Timer(0.05, lambda: device.budget.turn.release(100))
    with made:
        # Whatever makes the arena would wait for ever otherwise.
        arena = device.arena

        def let(*asked):
            found = arena(*asked)
            letting.start()
            return found

        device.arena = let
        steps(on, model, 0)
        pinning = made.report.pinning
        assert pinning.registered == pinning.size
        assert pinning.threads > 0
    letting.join()
    on.settled(device)


def test_the_arena_is_registered_in_the_order_in_which_tensors_leave():
    on, model = On("simulated"), Layers(16)
    made, device = slow(model, on)
    with made:
        steps(on, model, 0)
        ((first, *others),) = device.orders
        (plan,) = made.step_plans
        left = [
            plan.parts[plan.trace.gaps[action.gap].tensor]
            for row in plan.timetable.actions
            for action in row
            if action.act == "copy out"
        ]
        places = [place for parts in left for place in parts]
        assert [begin for begin, _ in (first, *others)] == [plan.host.offsets[p] for p in places]
        assert sum(size for _, size in (first, *others)) == sum(place.size for place in places)
        device.budget.turn.release(100)
    on.settled(device)


def test_what_the_device_refuses_meanwhile_is_told_once_and_steps_go_on():
    on, model = On("simulated"), Layers(16)
    plain = copy.deepcopy(model)
    Slow.refused = True
    try:
        made, device = slow(model, on)
        with made, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for turn in range(3):
                assert same(steps(on, model, turn), steps(on, plain, turn))
                report = made.report
                assert report.planned, report.deviation
                assert report.peak <= report.limit
                device.budget.turn.release(100)
                device.pinned()
            assert report.pinning.ended
            size = report.pinning.size
            assert device.pinned_bytes == PAGE
    finally:
        Slow.refused = False
    (warning,) = [str(each.message) for each in told if each.category is OffloadWarning]
    assert warning == (
        f"the device takes no more; {PAGE} of {size} bytes are registered, and other copies go "
        "through other memory, and the host waits for each of them"
    )
    on.settled(device)


@pytest.mark.parametrize("backward", [False, True])
def test_a_context_that_ends_meanwhile_leaves_nothing_registered(backward):
    on, model = On("simulated"), Layers(16)
    made, device = slow(model, on)
    threads = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        with made:
            loss = model(on.randn(*SHAPE)).square().mean()
            if backward:
                loss.backward()
            assert threading.active_count() > threads
            device.budget.turn.release(100)
    if not backward:
        # What had left is not lost.
        loss.backward()
        found = [each.grad.clone() for each in model.parameters()]
        model.zero_grad()
        assert all(each.isfinite().all() for each in found)
    assert threading.active_count() == threads
    on.settled(device)


@pytest.mark.parametrize("larger", [False, True])
def test_the_arena_of_a_plan_is_that_of_the_next_one_if_it_is_large_enough(larger):
    on, model = On("simulated"), Layers(16)
    plain = copy.deepcopy(model)
    problem = captured_problem(model, *SHAPE)
    every, few = evicting(problem), evicting(problem, lambda gap: gap % 2 == 0)
    limited = tight(problem, few)
    first, second = (
        step_plan(limited, plan, streams=True)
        for plan in ((few, every) if larger else (every, few))
    )
    device = SimulatedDevice(limited.platform)
    made = follow(model, few, limited, FollowOptions(device=device))
    made.step_plans[:] = [first]
    with made:
        for turn in range(4):
            assert same(steps(on, model, turn), steps(on, plain, turn))
            assert made.report.planned
            assert device.pinned_bytes == (second if larger and turn > 1 else first).host.pool
            if turn == 1:
                # As where a certified plan takes the place of a makeshift.
                made.follower.mover_maker.forget(first, instead=second)
                made.step_plans[:] = [second]
        assert (second.host.pool > first.host.pool) is larger
        # Of a plan by which nothing moves no memory is kept.
        idle = step_plan(problem, Plan(()), streams=True)
        made.follower.mover_maker.forget(second, instead=idle)
        assert device.pinned_bytes == 0
    on.settled(device)


def test_of_several_arenas_each_is_told_of_once(caplog):
    accounts = Accounts(strict=False)
    found = [Pinning(2**30, 2**30, float(seconds), threads=2) for seconds in (1, 2)]
    under_way = replace(found[0], registered=5, ended=False)
    at_once = replace(found[0], threads=0)
    with caplog.at_level(logging.INFO, logger="offcert.training"):
        for each in (None, at_once, under_way, *found, *found):
            accounts._tell_of_pinning(each)
    assert [each.message for each in caplog.records] == [
        "pinned 1024 MiB of 1024 MiB of the host's memory in 1.0 s (1.1 GB/s) by 2 threads, while "
        "steps ran",
        "pinned 1024 MiB of 1024 MiB of the host's memory in 2.0 s (0.5 GB/s) by 2 threads, while "
        "steps ran",
    ]
