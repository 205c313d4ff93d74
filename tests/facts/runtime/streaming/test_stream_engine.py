"""The engine on the simulated device: bitwise, to the byte, to the nanosecond, without a race."""

import random
from fractions import Fraction

import pytest

from offcert.core.platform import Link, Platform
from offcert.runtime.simulated.device import SimulatedDevice
from offcert.runtime.streaming.step_events import forecast
from support.runtime.captured import compare, convolutions, mean_step, random_plan

RATES = (Fraction(1, 3), Fraction(2), Fraction(7, 5), Fraction(100))


def platform_of(generator, memory):
    link = generator.choice((Link.SIMPLEX, Link.DUPLEX))
    return Platform(memory, generator.choice(RATES), link, generator.choice(RATES))


@pytest.mark.parametrize("seed", range(12))
def test_random_plans_are_followed_on_streams(seed):
    generator = random.Random(seed)
    devices = []

    def device(problem):
        devices.append(SimulatedDevice(problem.platform))
        return devices[0]

    def plan(problem):
        return random_plan(problem.trace, generator)

    step = mean_step(convolutions(), 2, 3, 8, 8)
    outcome = compare(step, plan=plan, steps=2, device=device)
    outcome.require_followed()
    program = outcome.offload.step_plans[0]
    expected = forecast(program.problem, program.timetable)
    assert outcome.times == [expected, expected]
    assert devices[0].races == []
    assert devices[0].pinned_bytes == 0
