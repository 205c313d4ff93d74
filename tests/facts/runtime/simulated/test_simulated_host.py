"""A host that takes time: nothing begins before it is handed over, and only its own work counts."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from offcert.core.platform import Link, Platform
from offcert.runtime.simulated import RealHost, SimulatedDevice
from support.runtime.scripted_host import ScriptedHost
from support.runtime.simulated_cases import counting, device_with, part, send


def since(device, start, *events):
    device.synchronise()
    return [device.nanoseconds(start, event) for event in events]


def test_a_host_that_is_behind_is_waited_for():
    host = ScriptedHost()
    device = device_with(host=host)
    start = device.compute.record()
    host.worked = 10
    device.ran(4)
    first = device.compute.record()
    host.worked = 11
    device.ran(20)
    second = device.compute.record()
    # The first ends no sooner than it has been handed over, the second takes its time.
    assert since(device, start, first, second) == [10, 30]
    # The host has waited until 30, and works on from there.
    host.worked = 16
    device.ran(1)
    assert since(device, start, device.compute.record()) == [35]


def test_operations_told_of_together_were_handed_over_evenly():
    host = ScriptedHost()
    device = device_with(host=host)
    start = device.compute.record()
    host.worked = 30
    # Handed over from 0, 10 and 20 on: 0 to 10, 10 to 35, 35 to 37.
    device.ran(1, 25, 2)
    assert since(device, start, device.compute.record()) == [37]


def test_a_copy_begins_when_it_is_handed_over():
    host = ScriptedHost()
    device = device_with(host=host)
    start = device.compute.record()
    host.worked = 7
    sent = send(device, counting(8), device.arena(8))
    assert since(device, start, sent) == [15]


def test_a_call_of_the_driver_takes_the_host_its_time():
    host = ScriptedHost(call=3)
    device = device_with(host=host)
    tensor, arena = counting(8), device.arena(8)
    assert host.worked == 0
    # Two events, a wait and a copy.
    send(device, tensor, arena)
    assert host.worked == 12
    device.ran(5)
    device.memory()
    assert host.worked == 12


def test_copies_slow_each_other_down_as_the_theory_says():
    device = SimulatedDevice(
        Platform(0, Fraction(3), Link.DUPLEX, Fraction(2), 1, Fraction(2), Fraction(1))
    )
    arena, other = device.arena(12), device.arena(4)
    start = device.compute.record()
    device.copy_out([part(counting(12), arena)])
    sent = device.out.record()
    device.ran(2)
    device.back.wait(device.compute.record())
    device.copy_back([part(counting(4), other)])
    # The example of docs/theory/slowing-links.md; what left was handed over before anything slowed.
    assert since(device, start, sent, device.back.record()) == [5, 6]


class Clock:
    """The nanoseconds that pass where a test says so."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


CLOCK = Clock()


@torch.library.custom_op("offcert_tests::slow", mutates_args=())
def slow(values: torch.Tensor) -> torch.Tensor:
    """Let a kernel take its time of the CPU's."""
    CLOCK.now += 50_000
    return values.exp()


class Works(nn.Module):
    """Python that takes its time, and a kernel that takes a thousand times that."""

    def forward(self, values):
        CLOCK.now += 50
        return slow(values).t()


def test_python_counts_and_kernels_do_not():
    host = RealHost(launch=7, clock=CLOCK)
    model, values = nn.Sequential(Works(), Works()), torch.ones(2, 3)
    begun = CLOCK.now
    with host:
        model(values)
    # Twice 50 of Python and a launch; what only looks at memory in another way is not launched.
    assert (host.now(), host.python, host.operators) == (114, 100, 2)
    assert CLOCK.now - begun == 100_100
    CLOCK.now += 1000
    # Nothing counts while it is not entered.
    assert host.now() == 114
    with host:
        CLOCK.now += 5
    assert host.now() == 119


def test_the_simulation_takes_none_of_the_hosts_time():
    host = RealHost(launch=7, call=11, clock=CLOCK)
    device = device_with(host=host)

    class Slow(list):
        def append(self, what):
            CLOCK.now += 1000
            super().append(what)

    device.races = Slow()
    first, second = (part(counting(8), arena) for arena in [device.arena(8)] * 2)
    begun = CLOCK.now
    with host:
        # Nothing orders these copies, which is found out and noted.
        device.copy_out([first])
        device.copy_back([second])
    assert device.races
    assert CLOCK.now - begun == 1000 * len(device.races)
    assert host.now() == 22


def test_a_host_that_reads_a_value_waits_for_the_device():
    host = RealHost(launch=7, call=0, clock=CLOCK)
    device = device_with(host=host)
    with host:
        start = device.compute.record()
        device.ran(500)
        value = torch.ones(1).item()
        device.ran(10, 3)
    assert value == 1
    # Handed over after the wait, until 507: the value is read then, and nothing runs meanwhile.
    assert since(device, start, device.compute.record()) == [513]


def test_a_launch_takes_what_is_left_of_a_recorded_step():
    host = RealHost(launch=1, clock=CLOCK)
    with host:
        Works()(Works()(Works()(torch.ones(2, 3))))
    # 150 of Python; three operators and what makes the ones share the other 2850.
    host.recorded(3000, host.python, host.operators)
    assert host.launch == 712
    host.recorded(10, host.python, host.operators)
    assert host.launch == 0


@pytest.mark.parametrize("busy", [Fraction(1, 2), Fraction(1)])
def test_a_device_of_a_platform_has_its_rates_while_both_directions_run(busy):
    rates = {"busy_bandwidth": busy, "busy_prefetch_bandwidth": busy}
    platform = Platform(0, Fraction(1), Link.DUPLEX, Fraction(1), **rates)
    device = SimulatedDevice(platform)
    start = device.compute.record()
    device.copy_out([part(counting(8), device.arena(8))])
    device.copy_back([part(counting(8), device.arena(8))])
    assert since(device, start, device.out.record()) == [8 / busy]
