"""Small problems on several devices, seeded."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.devices.problem import Accumulation, AdditionPlace, DevicesProblem, Gradient
from offcert.questions.schedule.problem import Problem
from support.problems.random_instances import random_problem


def three_layers(devices: int = 2, link: Link = Link.SIMPLEX) -> DevicesProblem:
    """Return three layers without offloading, whose numbers can be followed on paper."""
    durations = (2, 2, 2, 4, 4, 4)
    trace = Trace(
        [Operation(f"o{index}", ticks) for index, ticks in enumerate(durations)],
        [Tensor("x", 1, (0, 5))],
    )
    step = Problem("layers", trace, Platform(1, Fraction(1), link))
    gradients = [
        Gradient("third", 3, 3, 3),
        Gradient("second", 2, 4, 4),
        Gradient("first", 1, 5, 5),
    ]
    return DevicesProblem(
        "three layers", step, devices, gradients, Accumulation(AdditionPlace.HOST, Fraction(2))
    )


def tiny_step(rng: random.Random) -> Problem:
    """Return a step of three operations in which a tensor has to leave, mostly."""
    trace = Trace(
        [Operation(f"o{index}", rng.randint(0, 2), rng.choice((0, 0, 1))) for index in range(3)],
        [
            Tensor("a", rng.randint(1, 2), (0, 2)),
            Tensor("w", 1, (1,), evictable=False),
        ],
    )
    memory = trace.least_memory if rng.random() < 0.8 else trace.peak_memory
    link = rng.choice(tuple(Link))
    rate = rng.choice((Fraction(1), Fraction(2)))
    back = rng.choice((None, None, Fraction(1), Fraction(2)))
    return Problem("tiny", trace, Platform(memory, rate, link, back))


def tiny_devices(seed: int, place: AdditionPlace = AdditionPlace.HOST) -> DevicesProblem:
    """Return a problem that the oracle solves in a moment: two devices, one or two gradients."""
    rng = random.Random(seed)
    step = tiny_step(rng)
    gradients = [
        Gradient(f"g{index}", rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 2))
        for index in range(rng.choice((1, 1, 2)))
    ]
    rate = rng.choice((Fraction(1), Fraction(2)))
    cores = rng.randint(1, 2) if place is AdditionPlace.HOST else 1
    return DevicesProblem(f"tiny {seed}", step, 2, gradients, Accumulation(place, rate, cores))


def small_devices(seed: int) -> DevicesProblem:
    """Return a problem of one to three devices, either place, and up to two gaps a tensor."""
    rng = random.Random(seed)
    count = rng.randint(3, 5)
    uses = [sorted(rng.sample(range(-1, count), rng.randint(2, 3))) for _ in range(2)]
    trace = Trace(
        [
            Operation(f"o{index}", rng.randint(0, 3), rng.choice((0, 0, 1)))
            for index in range(count)
        ],
        [Tensor(f"t{index}", rng.randint(1, 3), tuple(each)) for index, each in enumerate(uses)],
    )
    least, peak = trace.least_memory, trace.peak_memory
    memory = rng.choice((least, least, (least + peak) // 2, peak))
    back = rng.choice((None, None, Fraction(1), Fraction(2)))
    rate = rng.choice((Fraction(1), Fraction(2)))
    step = Problem("small", trace, Platform(memory, rate, rng.choice(tuple(Link)), back))
    gradients = [
        Gradient(f"g{index}", rng.randint(1, 6), *rng.choices(range(count), k=2))
        for index in range(rng.randint(1, 2))
    ]
    place = rng.choice(tuple(AdditionPlace))
    cores = rng.randint(1, 2) if place is AdditionPlace.HOST else 1
    adding = Accumulation(place, rng.choice((Fraction(1, 2), Fraction(1), Fraction(2))), cores)
    return DevicesProblem(f"small {seed}", step, rng.randint(1, 3), gradients, adding)


def random_devices(
    seed: int, place: AdditionPlace | None = None, largest: int = 6
) -> DevicesProblem:
    """Return a problem of two to four devices on any trace."""
    rng = random.Random(seed)
    step = replace(random_problem(seed, largest), name="step")
    count = len(step.trace)
    gradients = [
        Gradient(f"g{index}", rng.randint(1, 30), *rng.choices(range(count), k=2))
        for index in range(rng.randint(1, 6))
    ]
    place = rng.choice(tuple(AdditionPlace)) if place is None else place
    cores = rng.randint(1, 3) if place is AdditionPlace.HOST else 1
    rate = Fraction(rng.randint(1, 9), rng.randint(1, 4))
    adding = Accumulation(place, rate, cores)
    return DevicesProblem(f"random {seed}", step, rng.randint(2, 4), gradients, adding)
