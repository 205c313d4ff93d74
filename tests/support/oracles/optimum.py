"""A method's plans beside the optimum by brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from offcert.core.errors import MethodError
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.oracles.schedules import brute_force


def against_the_optimum(
    problems: Iterable[Problem], method: Callable[[Problem], Plan]
) -> tuple[int, int]:
    """Assert that no plan is shorter than the optimum; count the plans, and those that are longer.

    A problem on which the method finds no plan is left out.
    """
    total = worse = 0
    for problem in problems:
        try:
            value = simulate(problem, method(problem)).makespan
        except MethodError:
            continue
        optimum = brute_force(problem)
        assert optimum is not None
        assert value >= optimum
        total += 1
        worse += value > optimum
    return total, worse
