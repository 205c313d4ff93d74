"""The pivot program in several turns, and with what is known about the ends of its sides."""

import math
from collections.abc import Callable, Iterator

import pytest
from test_pivot_dp import distinct_chain

from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.labels.ends.heads import heads_bound, quick_ends
from offcert.formulations.labels.pivot import pivot_bound
from offcert.formulations.labels.pivot.bound import PivotOutcome, PivotSearch
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.verification.pivot.check import pivot_fault
from support.oracles.schedules import brute_force
from support.problems.nested import nested_problems


def turns(problem: Problem, upper: int, looks: int, **options: object) -> Iterator[PivotOutcome]:
    """Yield the outcome of each turn; a turn ends when it has looked at the clock so often."""
    left = [0]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    search = PivotSearch(problem, max_labels=1_000_000, stop=stop)
    while True:
        left[0] = looks
        outcome = search.improve(upper, math.inf, **options)  # type: ignore[arg-type]
        yield outcome
        if outcome.schedule is not None:
            upper = outcome.schedule.makespan
        if outcome.complete:
            return


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offcert.formulations.labels.pivot.cut.STRIDE", 1)


def last(outcomes: Iterator[PivotOutcome], most: int, note: Callable[[PivotOutcome], None]) -> int:
    count = 0
    for outcome in outcomes:
        note(outcome)
        count += 1
        assert count < most
    return count


@pytest.mark.slow
@pytest.mark.parametrize("looks", [1, 7])
def test_turns_end_with_the_optimum_and_never_exceed_it(looks: int) -> None:
    several = 0
    for problem in nested_problems(60, 900, 5):
        optimum = brute_force(problem)
        assert optimum is not None
        found = []
        bounds = []

        def note(outcome: PivotOutcome, found=found, bounds=bounds, problem=problem) -> None:
            bounds.append(outcome.lower_bound)
            if outcome.schedule is not None:
                assert check(problem, outcome.schedule) == []
                found.append(outcome.schedule.makespan)

        several += last(turns(problem, 50 * optimum + 50, looks), 5_000, note) > 1
        assert bounds == sorted(bounds)
        assert bounds[-1] == optimum == found[-1]
        assert found == sorted(found, reverse=True)
    assert several > 10


def test_what_an_ended_turn_has_proved_is_confirmed() -> None:
    problem = distinct_chain(12)
    complete = pivot_bound(problem, upper_bound=10**6, time_limit=60, max_labels=10**6)
    seen = set()
    for outcome in turns(problem, 10**6, 400):
        if outcome.lower_bound not in seen and outcome.lower_bound > problem.trace.compute_time:
            assert pivot_fault(problem, outcome.lower_bound, outcome.proof) is None
        seen.add(outcome.lower_bound)
    assert len(seen) > 1
    assert max(seen) == complete.lower_bound


@pytest.mark.slow
def test_what_is_known_about_the_ends_is_used_and_stays_true() -> None:
    used = 0
    for problem in nested_problems(80, 4000, 5):
        optimum = brute_force(problem)
        assert optimum is not None
        heads = heads_bound(problem, upper_bound=2 * optimum, time_limit=60)
        if heads.proof is None:
            continue
        known, pivots = [heads.proof], [heads.proof.pivot]
        search = PivotSearch(problem, max_labels=100_000, pivots=pivots, stop=lambda: True)
        first = search.improve(2 * optimum + 2, math.inf, known)
        # Before anything is searched.
        assert first.lower_bound >= sum(heads.proof.times)
        used += first.lower_bound > 0
        *_, outcome = turns(problem, 2 * optimum + 2, 100, known=known)
        assert outcome.lower_bound == optimum
    assert used > 40


def test_a_pivot_that_was_not_chosen_joins_the_race() -> None:
    problem = distinct_chain(8)
    alone = pivot_bound(problem, upper_bound=10**6, time_limit=60, max_labels=10**6, pivots=[5])
    search = PivotSearch(problem, max_labels=10**6, pivots=[2])
    assert search.improve(10**6, 0.0).lower_bound < alone.lower_bound
    known = quick_ends(problem, required_absent(problem, subset_sum=True), 5)
    outcome = search.improve(10**6, 60.0, [known])
    assert outcome.complete
    assert outcome.lower_bound == alone.lower_bound
    assert outcome.proof.pivot == 5
