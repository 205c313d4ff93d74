"""Problems to which the pivot program applies: atomic, simplex, one gap a tensor, gaps nested."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from offcert.core.errors import MethodError
from offcert.core.platform import Link
from offcert.core.trace import Trace
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


def with_small_tensors(problem: Problem, seed: int) -> Problem:
    """Return the problem with all sizes multiplied, and a few bytes instead for some tensors."""
    rng = random.Random(seed)
    trace, platform = problem.trace, problem.platform
    operations = [replace(one, workspace=_SCALE * one.workspace) for one in trace.operations]
    tensors = [
        replace(one, size=_SCALE * one.size if rng.random() < 0.7 else min(one.size, 9))
        for one in trace.tensors
    ]
    rates: dict[str, Any] = {
        name: None if rate is None else _SCALE * rate
        for name, rate in (
            ("bandwidth", platform.bandwidth),
            ("prefetch_bandwidth", platform.prefetch_bandwidth),
        )
    }
    larger = replace(platform, memory=_SCALE * platform.memory, **rates)
    return Problem(f"{problem.name}-small", Trace(operations, tensors), larger)
