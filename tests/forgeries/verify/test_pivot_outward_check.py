"""The re-run of bounds with one side searched and the other asked: it confirms what is true."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from offcert.core.platform import Link
from offcert.core.result import Bound, Evidence
from offcert.formulations.labels.pivot_outward import PivotOutwardSearch
from offcert.questions.schedule.problem import Problem
from offcert.verify import pivot_outward as pivot_outward_check
from offcert.verify.limits import BeyondLimitsError
from offcert.verify.pivot.side import Found
from offcert.verify.pivot_outward import confirm_pivot_outward, pivot_outward_fault
from offcert.verify.recheck import recheck
from support.oracles.schedules import brute_force
from support.problems.nested import nested_problems, with_small_tensors


def cases(count: int, seed: int) -> Iterator[tuple[Problem, int, int]]:
    """Yield problems, some with small tensors, with optima and a pivot that needs something."""
    for index, problem in enumerate(nested_problems(count, seed, 4)):
        if index % 3 == 0:
            problem = with_small_tensors(problem, index)
        optimum = brute_force(problem)
        assert optimum is not None
        if optimum == problem.trace.compute_time:
            continue
        for pivot, demand in enumerate(problem.trace.demand):
            if demand > problem.platform.memory:
                yield problem, optimum, pivot


def proved(problem: Problem, upper: int) -> Bound | None:
    """Return what the program proves by a search, at most `upper`."""
    program = PivotOutwardSearch(problem, max_labels=10**6)
    outcome = program.improve(upper, 60.0, lambda schedule: upper)
    if outcome.ends is None:
        return None
    details = outcome.to_proof().write()
    return Bound("pivot-outward", outcome.lower_bound, Evidence.PROVED, details)


@cache
def example() -> tuple[Problem, Bound]:
    """Return a problem and a bound at its optimum that takes a search of several labels."""
    for problem in nested_problems(60, 1500, 6):
        optimum = brute_force(problem)
        assert optimum is not None
        bound = proved(problem, optimum)
        if bound is None or bound.value < optimum:
            continue
        ends = bound.details["ends"]
        advice = bound.details["side"], bound.details["limit"], optimum, (1,)
        known = ends["head"], ends["tail"]
        with suppress(BeyondLimitsError):
            pivot_outward_fault(problem, bound.details["pivot"], *advice, known, max_labels=3)
            continue
        free = pivot_outward_fault(problem, bound.details["pivot"], *advice[:3], (10**6,), known)
        if free is not None:
            return problem, bound
    raise AssertionError("none of them takes a search")


@pytest.mark.slow
def test_no_claim_above_the_optimum_is_established() -> None:
    established = refused = 0
    for problem, optimum, pivot in cases(120, 500):
        for side in (0, 1):
            for free_below in ((1,), (30, 1), (30,)):
                for over in (1, 4):
                    limit, claim = optimum + over, optimum + over
                    advice = side, limit, claim, free_below, (0, 0)
                    said = pivot_outward_fault(problem, pivot, *advice)
                    # With no tensor counted during the pivot there may be nothing to cut at.
                    assert said is not None
                    assert said.startswith(f"at details.pivot {pivot} the ")
                    refused += 1
            established += confirm_pivot_outward(problem, pivot, side, optimum, optimum)
    assert refused > 1000
    assert established > refused // 10


@pytest.mark.slow
def test_ends_that_hold_shorten_the_search_and_prove_no_more() -> None:
    shorter = 0
    for problem in nested_problems(60, 1500, 5):
        optimum = brute_force(problem)
        assert optimum is not None
        bound = proved(problem, optimum)
        if bound is None or optimum == problem.trace.compute_time:
            continue
        pivot, side, ends = (bound.details[name] for name in ("pivot", "side", "ends"))
        known = ends["head"], ends["tail"]
        limit = optimum - known[1 - side]
        assert not confirm_pivot_outward(problem, pivot, side, limit, optimum + 1, ends=known)
        said = pivot_outward_fault(problem, pivot, side, limit - 1, optimum + 1, (1,), known)
        assert said is not None
        shorter += said.startswith("details.limit is too small")
    assert shorter > 10


def forget_what_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pivot_outward_check.Ways

    def fewer(side: Any, found: Found) -> Any:
        return plain(side, replace(found, straddles=found.straddles[:0]))

    monkeypatch.setattr(pivot_outward_check, "Ways", fewer)


def forget_what_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    demands = pivot_outward_check.Asking.demands

    def fewer(*parts: Any) -> Iterator[Any]:
        return (demand for demand in demands(*parts) if demand[0] < 0)

    monkeypatch.setattr(pivot_outward_check.Asking, "demands", fewer)


def delay_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what straddles the cut take all of its time after it."""
    demands = pivot_outward_check.Asking.demands

    def later(asking: Any, *parts: Any) -> Iterator[Any]:
        for leaving, end, begin in demands(asking, *parts):
            if leaving >= 0:
                begin = int(asking._tables.away[leaving])
            yield leaving, end, begin

    monkeypatch.setattr(pivot_outward_check.Asking, "demands", later)


def keep_the_last_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    demands = pivot_outward_check.Asking.demands

    def fewer(*parts: Any) -> Iterator[Any]:
        return iter(list(demands(*parts))[-1:])

    monkeypatch.setattr(pivot_outward_check.Asking, "demands", fewer)


@pytest.mark.parametrize(
    "break_it", [forget_what_returns, forget_what_leaves, delay_the_link, keep_the_last_demand]
)
def test_a_checker_that_forgets_something_is_found_out(break_it: Any) -> None:
    wrong = 0
    for problem, optimum, pivot in cases(120, 500):
        for side in (0, 1):
            with pytest.MonkeyPatch.context() as patch:
                break_it(patch)
                claim = optimum + 1
                wrong += confirm_pivot_outward(problem, pivot, side, claim, claim)
    assert wrong > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"side": 2}, "details.side must be 0 or 1, not 2"),
        ({"side": -1}, "details.side"),
        ({"pivot": 99}, "details.ends.pivot must be below the number of operations"),
        ({"limit": 10**6}, "details.limit must be at most "),
        ({"limit": 2}, "details.limit is too small: a "),
        ({"free_below": [1, 30]}, "details.free_below must be positive and decrease, not [1, 30]"),
        ({"free_below": [0]}, "details.free_below[0] must be at least 1, not 0"),
        ({"free_below": []}, "details.free_below"),
        ({"free_below": [10**6]}, "at details.pivot"),
        ({"more": 1}, "more"),
        ({"ends": None}, "ends"),
    ],
)
def test_forged_details_are_refused_with_the_place(changes: dict[str, Any], said: str) -> None:
    problem, bound = example()
    assert recheck(bound, problem) is None
    forged = replace(bound, details={**bound.details, **changes})
    fault = recheck(forged, problem)
    assert fault is not None
    assert said in fault


def test_ends_that_are_too_long_are_refused_with_the_place() -> None:
    problem, bound = example()
    for name in ("head", "tail"):
        ends = {**bound.details["ends"], name: bound.value}
        fault = recheck(replace(bound, details={**bound.details, "ends": ends}), problem)
        assert fault is not None
        assert f"details.ends.{name} is too much" in fault


def test_problems_of_other_kinds_are_refused() -> None:
    problem, bound = example()
    duplex = replace(problem, platform=replace(problem.platform, link=Link.DUPLEX))
    assert recheck(bound, duplex) is not None
    assert recheck(bound, replace(problem, transfers="interruptible")) is not None


def test_a_search_that_is_too_large_is_given_up() -> None:
    problem, bound = example()
    details = bound.details
    ends = details["ends"]["head"], details["ends"]["tail"]
    advice = details["side"], details["limit"], bound.value, details["free_below"], ends
    assert pivot_outward_fault(problem, details["pivot"], *advice) is None
    with pytest.raises(BeyondLimitsError, match="the search is too large"):
        pivot_outward_fault(problem, details["pivot"], *advice, max_labels=3)
    assert bound.evidence is Evidence.PROVED
