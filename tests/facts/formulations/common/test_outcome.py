"""The bookkeeping around solvers: what is believed, what is refuted, what is kept."""

from __future__ import annotations

from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Kind, Platform
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.formulations.common.grid import longest_makespan
from offcert.formulations.common.outcome import ModelRun, SolverClaim
from offcert.formulations.models.interval_cpsat import solve
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from support.problems.short_problems import short_problems


def waiting() -> Problem:
    """Return a problem whose operations take 7 ticks and whose optimum is 14."""
    operations = [Operation("a", 3), Operation("spike", 0, 8), Operation("b", 3), Operation("c", 1)]
    trace = Trace(operations, [Tensor("x", 10, (0, 3))])
    return Problem("waiting", trace, Platform(10, Fraction(2)))


def test_bounds_are_rounded_up_less_a_margin() -> None:
    run = ModelRun(waiting(), None, None, 0, solver="S")
    assert run.lower_bound == 7
    run.take_bound(10.0000001, 1e-5)
    assert run.lower_bound == 10
    run.take_bound(10.01, 1e-5)
    assert run.lower_bound == 11
    run.take_bound(float("-inf"), 0.0)
    assert run.lower_bound == 11


def test_a_bound_counts_up_to_the_first_schedule_that_the_model_leaves_out() -> None:
    run = ModelRun(waiting(), 9, None, 0, solver="S")
    run.take_bound(500.0, 0.0)
    assert run.lower_bound == 10


def test_a_refutation_of_a_schedule_that_exists_is_an_error() -> None:
    problem = waiting()
    best = solve(problem).schedule
    run = ModelRun(problem, None, best, 0, solver="S")
    run.nothing_within()
    outcome = run.outcome()
    assert outcome.claim is None
    assert "excludes a schedule" in str(outcome.error)
    assert outcome.lower_bound == problem.trace.compute_time
    assert outcome.status is SolveStatus.FEASIBLE


def test_a_bound_above_a_schedule_is_an_error_and_no_proof() -> None:
    problem = waiting()
    run = ModelRun(problem, None, None, 0, solver="S")
    run.take_bound(300.0, 0.0)
    best = solve(problem).schedule
    assert best is not None
    run.take_plans([best.plan(problem.trace)], exact=True)
    outcome = run.outcome()
    assert outcome.objective == 14
    assert outcome.lower_bound == 7
    assert "contradicts" in str(outcome.error)


def test_a_plan_that_gets_stuck_is_an_error_only_if_it_must_not() -> None:
    problem = waiting()
    nonsense = Plan([Move(Kind.PREFETCH, 0, 2)])
    run = ModelRun(problem, None, None, 0, solver="S")
    run.take_plans([nonsense], exact=False)
    assert run.error is None
    run.take_plans([nonsense], exact=True)
    assert "could not be re-simulated" in str(run.error)
    assert run.outcome().status is SolveStatus.UNKNOWN


def test_what_the_solver_shows_is_told_from_what_it_was_given() -> None:
    run = ModelRun(waiting(), None, None, 12, solver="S")
    assert run.outcome().claim is None
    run.take_bound(9.0, 0.0)
    outcome = run.outcome()
    assert (outcome.lower_bound, outcome.claim) == (12, SolverClaim(9, "S"))
    assert outcome.details["model_bound"] == 9
    run.nothing_within()
    assert run.outcome().claim == SolverClaim(run.upper + 1, "S")


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), RuntimeError("no licence")])
def test_what_is_known_outlasts_a_solver_that_does_not_come_back(trouble: BaseException) -> None:
    run = ModelRun(waiting(), None, None, 0, solver="S", seed=3)
    with run.kept():
        run.take_bound(9.0, 0.0)
        raise trouble
    outcome = run.outcome()
    assert outcome.lower_bound == 9
    assert outcome.interrupted is isinstance(trouble, KeyboardInterrupt)
    assert outcome.error == (None if outcome.interrupted else "RuntimeError: no licence")
    said = {"interrupted": True} if outcome.interrupted else {"error": "RuntimeError: no licence"}
    expected = {"solver": "S", "seed": 3, "model_bound": 9, "upper_bound": run.upper} | said
    assert outcome.details == expected | {"seconds": outcome.seconds}


@pytest.mark.parametrize("ours", [InputError("grid must be at least 1"), KeyError("a mistake")])
def test_what_is_no_failure_of_the_solver_is_raised(ours: Exception) -> None:
    run = ModelRun(waiting(), None, None, 0, solver="S")
    with pytest.raises(type(ours)), run.kept():
        raise ours


def test_better_schedules_are_told_of_and_worse_ones_are_not() -> None:
    problem, told = waiting(), []
    best = solve(problem).schedule
    assert best is not None
    run = ModelRun(problem, None, None, 0, solver="S", on_solution=told.append)
    plan = best.plan(problem.trace)
    run.take_plans([plan, plan], exact=True)
    assert [schedule.makespan for schedule in told] == [14]


def test_no_optimum_exceeds_the_longest_makespan() -> None:
    for problem, best in short_problems(900, 50):
        assert infeasibility(problem) is None
        assert best <= longest_makespan(problem)
