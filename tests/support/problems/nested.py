"""Problems to which the pivot program applies: atomic, simplex, one gap a tensor, gaps nested."""

from __future__ import annotations

from dataclasses import replace

from offcert.core.errors import MethodError
from offcert.core.platform import Link
from offcert.formulations.labels.pivot.model import nested
from offcert.questions.schedule.problem import Problem
from support.problems.random_instances import random_problem, some_two_rates

_SCALE = 10_000


def nested_problems(count: int, seed: int, largest: int) -> list[Problem]:
    """Return so many random ones, every other on a link with different rates per direction."""
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
