"""The engine on the simulated device: bitwise, to the byte, to the nanosecond, without a race."""

import random
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from captured import compare, mean_step
from torch import nn

from offcert.core.plan import Kind, Move, Plan
from offcert.core.platform import Link, Platform
from offcert.runtime.device.simulated.device import SimulatedDevice
from offcert.runtime.streaming.forecast import forecast

RATES = (Fraction(1, 3), Fraction(2), Fraction(7, 5), Fraction(100))


def convolutions():
    torch.manual_seed(0)
    widths = (3, 4, 6, 5, 4)
    layers = []
    for a, b in pairwise(widths):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Dropout(0.3), nn.Flatten(), nn.Linear(4 * 64, 7))


def random_plan(trace, generator):
    """Evict a random half of the gaps, each for a random stretch."""
    moves, offloaded = [], set()
    for number, gap in enumerate(trace.gaps):
        if generator.random() < 0.5:
            continue
        release = gap.before + 1
        if gap.tensor not in offloaded:
            offloaded.add(gap.tensor)
            release = generator.randint(release, gap.after)
            moves.append(Move(Kind.OFFLOAD, number, release))
        moves.append(Move(Kind.PREFETCH, number, generator.randint(release, gap.after)))
    return Plan(moves)


def platform_of(generator, memory):
    link = generator.choice((Link.SIMPLEX, Link.DUPLEX))
    return Platform(memory, generator.choice(RATES), link, generator.choice(RATES))


@pytest.mark.parametrize("seed", range(12))
def test_random_plans_are_followed_on_streams(seed):
    generator = random.Random(seed)
    devices = []

    def device(problem):
        devices.append(SimulatedDevice.of(problem.platform))
        return devices[0]

    def plan(problem):
        return random_plan(problem.trace, generator)

    step = mean_step(convolutions(), 2, 3, 8, 8)
    outcome = compare(step, plan=plan, steps=2, device=device)
    outcome.require_followed()
    program = outcome.offload.programs[0]
    expected = forecast(program.problem, program.timetable)
    assert outcome.times == [expected, expected]
    assert devices[0].races == []
    assert devices[0].pinned_bytes == 0
