"""The plan that always works: against looking at every gap before every operation."""

import pytest

from offcert.core.errors import MethodError
from offcert.core.platform import Kind
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.problems.long_problems import long_problem
from support.problems.random_instances import mixed_problem


def plainly(problem: Problem) -> Plan | None:
    """Belady's rule, written down without any order kept from one operation to the next."""
    trace = problem.trace
    moves: list[Move] = []
    gone: set[int] = set()
    copied: set[int] = set()
    for operation in range(len(trace)):
        need = trace.demand[operation] - problem.platform.memory
        need -= sum(trace.gap_size(gap) for gap in gone if trace.gaps[gap].spans(operation))
        candidates = [gap for gap in trace.gaps_over[operation] if gap not in gone]
        for gap in sorted(candidates, key=lambda gap: trace.gaps[gap].after, reverse=True):
            if need <= 0:
                break
            need -= trace.gap_size(gap)
            gone.add(gap)
            if trace.gaps[gap].tensor not in copied:
                copied.add(trace.gaps[gap].tensor)
                moves.append(Move(Kind.OFFLOAD, gap, operation))
        if need > 0:
            return None
        for gap in sorted(gap for gap in gone if trace.gaps[gap].after == operation):
            moves.append(Move(Kind.PREFETCH, gap, operation))
            gone.discard(gap)
    return Plan(moves)


@pytest.mark.parametrize("seed", range(150))
def test_the_plan_is_that_of_the_plain_rule(seed: int) -> None:
    problem = mixed_problem(seed, 9)
    expected = plainly(problem)
    if expected is None:
        with pytest.raises(MethodError, match=r"lacks \d+ bytes in every plan"):
            sequential(problem)
    else:
        assert sequential(problem) == expected


@pytest.mark.parametrize("nested", [True, False])
def test_the_plan_is_that_of_the_plain_rule_on_longer_traces(nested: bool) -> None:
    problem = long_problem(5, 300, 120, nested=nested)
    plan = sequential(problem)
    assert plan == plainly(problem)
    assert len(plan.evicted) > 20


def test_ten_thousand_operations_are_served() -> None:
    problem = long_problem(1)
    schedule = simulate(problem, sequential(problem))
    assert check(problem, schedule) == []
    assert len(schedule.evicted) > 1000
