"""Random programs of a host that takes time, on a link that slows down: exact, beside ticks."""

import random
from fractions import Fraction

import torch

from offcert.core.platform import Link, Platform
from offcert.runtime.simulated import SimulatedDevice
from support.oracles.hosted_device import Step, Ticks, random_hosted_program
from support.runtime.scripted_host import ScriptedHost
from support.runtime.simulated_cases import part
from support.seeds import by_seeds


def run(steps: list[Step], alone: tuple[Fraction, Fraction], busy: tuple[Fraction, Fraction]):
    host = ScriptedHost()
    device = SimulatedDevice(
        Platform(0, alone[0], Link.DUPLEX, alone[1], 1, busy[0], busy[1]), host=host
    )
    arena = device.arena(32)
    streams = {name: getattr(device, name) for name in ("compute", "out", "back")}
    tensors, events = [], []
    start = device.compute.record()
    for what, *rest in steps:
        if what == "works":
            host.worked += rest[0]
        elif what == "ran":
            device.ran(*rest)
        elif what == "copy":
            tensors.append(torch.zeros(rest[1], dtype=torch.uint8))
            copy = device.copy_out if rest[0] == "out" else device.copy_back
            copy([part(tensors[-1], arena)])
        elif what == "record":
            events.append(streams[rest[0]].record())
        elif what == "wait":
            streams[rest[0]].wait(events[rest[1]])
        else:
            events[rest[0]].wait_here()
    device.synchronise()
    return [device.nanoseconds(start, event) for event in events]


@by_seeds(0, 240, 60)
def test_all_ends_when_it_ends_tick_by_tick(seeds):
    slowed = waited = 0
    for seed in seeds:
        chance = random.Random(seed)
        alone = tuple(Fraction(chance.randrange(4, 13), chance.randrange(1, 4)) for _ in range(2))
        busy = tuple(rate * Fraction(chance.randrange(1, 5), 4) for rate in alone)
        steps = random_hosted_program(seed)
        expected = Ticks(alone, busy).run(steps)
        assert run(steps, alone, busy) == expected, seed
        slowed += expected != Ticks(alone, alone).run(steps)
        idle = [("works", 0) if step[0] == "works" else step for step in steps]
        waited += expected != Ticks(alone, busy).run(idle)
    # The programs are about what they are said to be about.
    assert slowed > 20
    assert waited > 40
