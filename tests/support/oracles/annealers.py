"""What holds for every annealer over sets of ordered schedules."""

from collections.abc import Callable

from offcert.core.errors import MethodError
from offcert.heuristics.orders.order_search import OrderAnnealer
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from support.problems.random_instances import mixed_problem


def valid_runs(make: Callable[[Problem, int], OrderAnnealer], count: int) -> int:
    """Anneal on random problems and check what comes out; return how many there were to start."""
    ran = 0
    for seed in range(count):
        problem = mixed_problem(seed, 5)
        try:
            annealer = make(problem, seed)
        except MethodError:
            continue
        before = annealer.makespan
        improved = annealer.run(500, 10.0, 0.1)
        schedule = annealer.schedule()
        assert check(problem, schedule) == []
        assert schedule.makespan == annealer.makespan
        assert improved == (annealer.makespan < before)
        ran += 1
    return ran
