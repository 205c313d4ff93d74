"""Dives: they meet bounds that can be met, refute those that cannot, and lose nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from offcert.core.result import SolveStatus
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.formulations.common.outcome import ModelOutcome
from offcert.formulations.models import interval_cpsat as interval_dive
from offcert.formulations.models.interval_cpsat import dive
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from support.oracles.schedules import brute_force
from support.problems.random_instances import counterexample, mixed_problem


@cache
def hard_ones() -> list[tuple[Problem, Schedule, int]]:
    """Return problems on which the plainest plan is not optimal, with it and the optimum."""
    found = []
    for seed in range(150):
        problem = mixed_problem(seed, 4)
        if infeasibility(problem) is None:
            start, best = simulate(problem, sequential(problem)), brute_force(problem)
            assert best is not None
            if best < start.makespan:
                found.append((problem, start, best))
    return found


@pytest.mark.slow
def test_a_bound_that_is_the_optimum_is_met() -> None:
    assert len(hard_ones()) > 20
    for problem, start, best in hard_ones():
        outcome = dive(problem, start, lower_bound=best)
        assert outcome.objective == best, problem.name
        assert outcome.schedule is not None
        assert check(problem, outcome.schedule) == []
        assert outcome.lower_bound <= best
        assert outcome.details["dives"] == 1


@pytest.mark.slow
def test_a_bound_that_cannot_be_met_rises_to_the_optimum() -> None:
    """From below, by refutation and room; the claim never exceeds what brute force finds."""
    rose = 0
    for problem, start, best in hard_ones():
        outcome = dive(problem, start, lower_bound=best - 3, time_limit=30)
        assert outcome.objective == best, problem.name
        assert outcome.lower_bound <= best
        rose += outcome.lower_bound == best
    assert rose > 10


@pytest.mark.slow
def test_a_bound_that_is_wrong_makes_no_claim() -> None:
    for problem, start, best in hard_ones():
        outcome = dive(problem, start, lower_bound=best + 1)
        assert best <= outcome.objective <= max(best + 1, outcome.lower_bound)
        assert outcome.lower_bound <= best


def test_the_interleaved_optimum_of_the_counterexample() -> None:
    problem = counterexample()
    outcome = dive(problem, simulate(problem, sequential(problem)), lower_bound=219)
    assert outcome.objective == 219


def test_the_same_seed_gives_the_same_schedule() -> None:
    problem, start, best = hard_ones()[0]
    runs = [dive(problem, start, lower_bound=best - 1, seed=5, time_limit=60) for _ in range(2)]
    assert runs[0].schedule == runs[1].schedule
    assert runs[0].statistics == runs[1].statistics


def test_without_time_the_incumbent_is_returned() -> None:
    problem, start, _ = hard_ones()[0]
    outcome = dive(problem, start, time_limit=0.0)
    assert outcome.schedule is start
    assert outcome.status is SolveStatus.FEASIBLE
    assert outcome.details["dives"] == 0


@pytest.mark.parametrize("trouble", [{"interrupted": True}, {"error": "RuntimeError: no"}])
def test_an_interrupt_or_a_failure_keeps_what_was_found(
    monkeypatch: pytest.MonkeyPatch, trouble: dict[str, Any]
) -> None:
    problem, start, best = hard_ones()[0]
    optimum = dive(problem, start, lower_bound=best).schedule
    answer = ModelOutcome(SolveStatus.FEASIBLE, optimum, problem.trace.compute_time, **trouble)
    calls = []

    def solve(*_: object, **options: object) -> ModelOutcome:
        calls.append(options)
        return replace(answer)

    monkeypatch.setattr(interval_dive, "solve", solve)
    outcome = dive(problem, start, lower_bound=best - 1)
    assert len(calls) == 1
    assert outcome.schedule is optimum
    assert outcome.status is SolveStatus.FEASIBLE
    assert outcome.interrupted is ("interrupted" in trouble)
    assert outcome.error == trouble.get("error")
