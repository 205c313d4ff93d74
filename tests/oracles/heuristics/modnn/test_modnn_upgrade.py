"""Room that a schedule leaves for workspaces: exactly as much as the checker allows."""

from dataclasses import replace

import pytest

from offcert.core.errors import NoPlanError
from offcert.core.trace import Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.heuristics.modnn.scheduler import free_workspace, upgraded
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from offcert.questions.split.menu import Alternative, Menu
from support.problems.random_instances import mixed_problem


def with_workspace(problem: Problem, operation: int, workspace: int) -> Problem:
    trace = problem.trace
    operations = list(trace.operations)
    operations[operation] = replace(operations[operation], workspace=workspace)
    return Problem("t", Trace(operations, trace.tensors), problem.platform)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_free_can_be_taken_and_no_more(seed: int) -> None:
    problem = mixed_problem(seed, 5)
    try:
        schedule = simulate(problem, sequential(problem))
    except NoPlanError:
        return
    room = free_workspace(problem.trace, schedule, problem.platform.memory)
    for operation, free in enumerate(room):
        assert free >= problem.trace.operations[operation].workspace
        assert check(with_workspace(problem, operation, free), schedule) == []
        if problem.trace.durations[operation]:
            assert check(with_workspace(problem, operation, free + 1), schedule)
    # Of each operation, the fastest alternative that fits.
    ways = {
        operation: [Alternative("a", 9), Alternative("b", 2, free), Alternative("c", 1, free + 1)]
        for operation, free in enumerate(room)
    }
    memory = problem.platform.memory
    assert set(upgraded(problem.trace, Menu(ways), schedule, memory) or ()) == {1}
    none = Menu({0: [Alternative("c", 1, room[0] + 1)]})
    assert upgraded(problem.trace, none, schedule, memory) is None
