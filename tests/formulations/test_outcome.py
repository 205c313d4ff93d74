"""The bookkeeping around solvers: what is believed, what is refuted, what is kept."""

from __future__ import annotations

from fractions import Fraction

from offcert.core.plan import Kind, Move, Plan
from offcert.core.platform import Platform
from offcert.core.problem import Problem
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.formulations.common.outcome import Progress, longest_makespan
from offcert.formulations.models.interval_cpsat import solve
from tests.formulations.short_problems import short_problems


def waiting() -> Problem:
    """Return a problem whose operations take 7 ticks and whose optimum is 14."""
    operations = [Operation("a", 3), Operation("spike", 0, 8), Operation("b", 3), Operation("c", 1)]
    trace = Trace(operations, [Tensor("x", 10, (0, 3))])
    return Problem("waiting", trace, Platform(10, Fraction(2)))


def test_bounds_are_rounded_up_less_a_margin() -> None:
    progress = Progress(waiting(), None, None, 0)
    assert progress.lower_bound == 7
    progress.take_bound(10.0000001, 1e-5)
    assert progress.lower_bound == 10
    progress.take_bound(10.01, 1e-5)
    assert progress.lower_bound == 11
    progress.take_bound(float("-inf"), 0.0)
    assert progress.lower_bound == 11


def test_a_bound_counts_up_to_the_first_schedule_that_the_model_leaves_out() -> None:
    progress = Progress(waiting(), 9, None, 0)
    progress.take_bound(500.0, 0.0)
    assert progress.lower_bound == 10


def test_a_refutation_of_a_schedule_that_exists_is_an_error() -> None:
    problem = waiting()
    best = solve(problem).schedule
    progress = Progress(problem, None, best, 0)
    progress.nothing_within()
    outcome = progress.outcome()
    assert "excludes a schedule" in outcome.details["error"]
    assert outcome.lower_bound == problem.trace.compute_time
    assert outcome.status is SolveStatus.FEASIBLE


def test_a_bound_above_a_schedule_is_an_error_and_no_proof() -> None:
    problem = waiting()
    progress = Progress(problem, None, None, 0)
    progress.take_bound(300.0, 0.0)
    best = solve(problem).schedule
    assert best is not None
    progress.take_plans([best.plan(problem.trace)], exact=True)
    outcome = progress.outcome()
    assert outcome.objective == 14
    assert outcome.lower_bound == 7
    assert "contradicts" in outcome.details["error"]


def test_a_plan_that_gets_stuck_is_an_error_only_if_it_must_not() -> None:
    problem = waiting()
    nonsense = Plan([Move(Kind.PREFETCH, 0, 2)])
    progress = Progress(problem, None, None, 0)
    progress.take_plans([nonsense], exact=False)
    assert "error" not in progress.details
    progress.take_plans([nonsense], exact=True)
    assert "could not be re-simulated" in progress.details["error"]
    assert progress.outcome().status is SolveStatus.UNKNOWN


def test_no_optimum_exceeds_the_longest_makespan() -> None:
    for problem, best in short_problems(900, 50):
        assert infeasibility(problem) is None
        assert best <= longest_makespan(problem)
