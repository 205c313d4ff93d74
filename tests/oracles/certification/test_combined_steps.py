"""The step that runs the combined program: what it offers is legal, and is what it finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps import rematerialisation as combined_steps
from offcert.certification.search_steps.rematerialisation import SLOTS, descend_combined, seconds
from offcert.core.errors import MethodError
from offcert.heuristics.combined.search import combined_plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from support.problems.combined import combined_problem


def searched(problem: Problem, limit: float = 10.0) -> Search:
    search = Search(problem, limit)
    descend_combined(search, Effort(limit))
    return search


@pytest.mark.parametrize("recompute", [Recompute.CHAIN, Recompute.ANY])
def test_the_best_of_its_plans_is_offered(
    recompute: Recompute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combined_steps, "SLOTS", SLOTS[:2])
    found = again = 0
    for seed in (9, 10, 12, 15, 16, 18):
        problem = replace(combined_problem(seed, 5), recompute=recompute)
        search = searched(problem)
        values = []
        for slots in SLOTS[:2]:
            for bare in (False, True):
                try:
                    plan = combined_plan(problem, slots, bare=bare)
                    values.append(plan.atomic(problem).makespan)
                except MethodError:
                    continue
        assert search.objective == min(values, default=None)
        found += search.objective is not None
        again += search.execution is not None and search.execution.repeated > 0
    assert found == 5
    assert again >= 2


def test_without_time_there_is_one_try() -> None:
    search = Search(combined_problem(9, 5), 10.0)
    descend_combined(search, Effort(0.0))
    assert search.objective is not None


def test_least_memory_within_a_deadline() -> None:
    fewer = 0
    for seed in range(8):
        problem = combined_problem(seed, 5)
        peak, compute = problem.trace.peak_memory, problem.trace.compute_time
        for deadline in (compute, compute * 3 // 2, None):
            bytes_ = replace(problem.with_memory(peak), minimise=Minimise.MEMORY, deadline=deadline)
            search = searched(bytes_)
            if search.objective is None:
                continue
            assert search.objective <= peak
            assert search.schedule is not None
            assert deadline is None or search.schedule.makespan <= deadline
            fewer += search.objective < peak
    assert fewer > 8


def test_where_nothing_runs_again_it_offers_nothing() -> None:
    problem = replace(combined_problem(3, 5), recompute=Recompute.NONE)
    assert searched(problem).objective is None


def test_more_slots_take_longer() -> None:
    assert seconds(100, 50, bare=False) < seconds(100, 50, bare=True) < seconds(100, 100, bare=True)
