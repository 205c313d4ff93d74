"""Problems to which the pivot program applies: atomic, one gap a tensor, gaps nested."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from offcert.core.errors import MethodError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.labels.pivot.model import nested
from offcert.questions.schedule.problem import Problem
from support.problems.random_instances import random_problem, some_two_rates


def nested_problems(count: int, seed: int, largest: int) -> list[Problem]:
    """Return so many random ones, every other on a link with different rates per direction.

    The link is simplex.
    """
    problems: list[Problem] = []
    while len(problems) < count:
        problem = random_problem(seed, largest)
        problem = replace(problem, platform=replace(problem.platform, link=Link.SIMPLEX))
        seed += 1
        try:
            nested(problem)
        except MethodError:
            continue
        problems.append(problem)
    return list(some_two_rates(problems))


def duplex_problems(count: int, seed: int, largest: int) -> list[Problem]:
    """Return so many on a duplex link; every third is slower while both directions run."""
    problems = []
    for number, problem in enumerate(nested_problems(count, seed, largest)):
        platform = both_ways(problem).platform
        if number % 3 == 2:
            busy = [platform.rate(kind) * Fraction(2, 3) for kind in (Kind.OFFLOAD, Kind.PREFETCH)]
            platform = replace(platform, busy_bandwidth=busy[0], busy_prefetch_bandwidth=busy[1])
        problems.append(replace(problem, platform=platform))
    return problems


def both_ways(problem: Problem) -> Problem:
    """Return the problem on a duplex link of the same rates."""
    return replace(problem, platform=replace(problem.platform, link=Link.DUPLEX))


def spiky(seed: int) -> Problem:
    """Return a problem that needs memory in many places, with few tensors, on a simplex link."""
    rng = random.Random(seed)
    count, tensors = rng.randint(5, 8), rng.randint(2, 4)
    operations = [
        Operation(f"o{index}", rng.choice((0, 1, 3, 8)), rng.choice((0, 0, 4, 9, 14)))
        for index in range(count)
    ]
    opens = sorted(rng.choices(range(-1, count - 2), k=tensors))
    closes = sorted((rng.randint(opens[-1] + 2, count - 1) for _ in opens), reverse=True)
    written = [max(-1, before - 1) if rng.random() < 0.4 else before for before in opens]
    trace = Trace(
        operations,
        [
            Tensor(f"t{index}", rng.choice((3, 5, 5, 8)), tuple(sorted({writer, before, after})))
            for index, (writer, before, after) in enumerate(
                zip(written, opens, closes, strict=True)
            )
        ],
    )
    memory = trace.least_memory + rng.choice((0, 0, 1, 3))
    return Problem(
        f"spiky-{seed}",
        trace,
        Platform(memory, Fraction(rng.choice((1, 1, 2)), rng.choice((1, 2)))),
    )


# Seeds of `spiky` with which a link that runs both ways saves time. Found by brute force.
WHERE_BOTH_WAYS_PAY = (30, 38, 50, 72, 306, 537, 949, 973, 1117, 1180, 1252, 1308, 1517, 1528, 1572)
