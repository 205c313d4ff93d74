"""Methods that only move, where computations may run again: they make plans, and prove nothing."""

from dataclasses import replace

import pytest

from offcert.certification.methods import solve
from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.verification.document import verify
from support.problems.joint import joint_problem


def roomy() -> Problem:
    """A small problem in which moving alone is enough, and has something to do."""
    for seed in range(100):
        problem = joint_problem(seed)
        if problem.trace.least_memory < problem.trace.peak_memory and problem.trace.gaps:
            return problem.with_memory(problem.trace.least_memory)
    raise AssertionError


def test_a_plan_that_moves_is_a_plan_of_the_larger_problem_without_its_bounds() -> None:
    problem = roomy()
    assert problem.recompute is Recompute.ANY
    moving = solve(replace(problem, recompute=Recompute.NONE), "interval-cpsat", time_limit=5)
    found = solve(problem, "interval-cpsat", time_limit=5)
    assert found.result.objective == moving.result.objective
    assert found.result.execution is not None
    assert found.result.execution.repeated == 0
    # What no plan that only moves undercuts, one that runs something again may.
    assert moving.result.lower_bound == moving.result.objective
    assert not {each.method for each in found.result.bounds} & {"interval-cpsat", "combinatorial"}
    assert verify(found).valid


def test_where_moving_is_not_enough_the_method_says_so() -> None:
    drawn = map(joint_problem, range(100))
    problem = next(
        each for each in drawn if each.offload and each.least_memory < each.trace.least_memory
    )
    found = solve(problem.with_memory(problem.trace.least_memory - 1), "sequential")
    assert found.result.schedule is None
    assert (found.notes.no_plan or "").startswith("it only moves, and ")


def test_other_objectives_and_transfers_in_pieces_are_refused_as_before() -> None:
    least = replace(roomy(), minimise=Minimise.MEMORY)
    with pytest.raises(InputError, match="method sequential is for recompute none, not any"):
        solve(least, "sequential")
    pieces = replace(roomy(), transfers=Transfers.FRACTIONAL)
    with pytest.raises(InputError, match="method fluid-exact is for recompute none, not any"):
        solve(pieces, "fluid-exact")
