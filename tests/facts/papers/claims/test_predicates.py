"""Claims about single limits, on tables in which they hold, fail and stay open."""

from fractions import Fraction
from typing import Any

import pytest

from offcert_lab.comparisons.points import points_of
from papers.claims.judge import Case
from papers.claims.predicates import (
    Cases,
    below_prop3,
    differs_with_seed,
    near,
    near_optimum,
    never_longer,
    no_plan_up_to,
    number,
    plans,
    same,
    title,
    within_seconds,
)
from support.problems.campaign_tables import rows, table

F = Fraction


def found(predicate: Cases, *groups: Any) -> list[Case]:
    return predicate(points_of(table(*groups), F(2)))


def outcomes(predicate: Cases, *groups: Any) -> str:
    """Return the first letters: holds, fails, open."""
    return "".join(case.outcome[0] for case in found(predicate, *groups))


def test_never_longer_is_asked_where_both_have_a_plan() -> None:
    groups = (
        rows("a", 100, greedy=110, vdnn=110),
        rows("a", 120, greedy=111, vdnn=110),
        rows("a", 140, greedy=100, vdnn=110),
        rows("a", 150, greedy=100, vdnn="NO_PLAN"),
        rows("a", 160, greedy="FAILED", vdnn=110),
        rows("a", 170, greedy=100),
        rows("a", 200, greedy=99, vdnn=60),
    )
    assert outcomes(never_longer("greedy", "vdnn"), *groups) == "hfh"
    worst = found(never_longer("greedy", "vdnn"), *groups)[1]
    assert worst.amount == F(111, 110)
    assert worst.text == "GREEDY takes 1.009 × the time of VDNN"
    assert worst.point is not None
    assert worst.label == worst.point.label == "a at 20 %"


def test_infeasible_limits_are_no_cases() -> None:
    assert outcomes(never_longer("greedy", "vdnn"), rows("a", 90, greedy=300, vdnn=200)) == ""


def test_near_works_both_ways_and_same_is_exact() -> None:
    groups = (
        rows("a", 100, autoswap=102, greedy=100),
        rows("a", 110, autoswap=100, greedy=103),
        rows("a", 120, autoswap=100, greedy=100),
    )
    assert outcomes(near("autoswap", "greedy", F(102, 100)), *groups) == "hfh"
    assert outcomes(same("autoswap", "greedy"), *groups) == "ffh"


def test_below_prop3_is_strict() -> None:
    # Proposition 3 gives 80 ticks at 120 bytes.
    groups = (rows("a", 120, dynprog=95), rows("b", 120, dynprog=96), rows("c", 120, dynprog=97))
    assert outcomes(below_prop3("dynprog", F(6, 5)), *groups) == "hff"


@pytest.mark.parametrize(
    ("makespan", "bound", "outcome"),
    [(108, 90, "h"), (109, 90, "o"), (120, 90, "o"), (121, 90, "f"), (121, 100, "f")],
)
def test_near_optimum_holds_against_the_bound_and_fails_against_a_schedule(
    makespan: int, bound: int, outcome: str
) -> None:
    certified = {"makespan": 100, "lower_bound": bound}
    groups = rows("a", 120, certify=certified, dynprog=makespan)
    assert outcomes(near_optimum("dynprog", F(6, 5)), groups) == outcome


def test_near_optimum_takes_the_networks_it_is_asked_for() -> None:
    groups = (
        rows("a", 120, certify=90, dynprog=90, network="densenet121"),
        rows("b", 120, certify=90, dynprog=99, network="resnet18"),
        rows("c", 120, certify=90, dynprog=99, network=None),
        rows("d", 120, certify=90, dynprog="NO_PLAN", network="densenet121"),
    )
    assert outcomes(near_optimum("dynprog", F(102, 100), "densenet"), *groups) == "h"
    # Where nobody looked for the optimum, the best of the heuristics is no measure.
    assert outcomes(near_optimum("dynprog", F(1)), rows("e", 120, dynprog=90, greedy=99)) == ""
    assert outcomes(near_optimum("dynprog", F(102, 100)), *groups) == "hff"


def test_plans_fail_without_one_and_stay_open_where_a_process_died() -> None:
    groups = (
        rows("a", 100, dynprog="NO_PLAN"),
        rows("a", 110, dynprog=200),
        rows("a", 120, dynprog="FAILED"),
        rows("a", 130, greedy=100),
    )
    assert outcomes(plans("dynprog"), *groups) == "fho"


def test_no_plan_up_to_looks_at_low_memory_only() -> None:
    groups = (
        rows("a", 100, tflms="NO_PLAN"),
        rows("a", 125, tflms=99),
        rows("a", 126, tflms=99),
        rows("b", 110, tflms="FAILED"),
    )
    assert outcomes(no_plan_up_to("tflms", 25), *groups) == "hf"


def test_seeds_must_be_several_to_differ() -> None:
    groups = (
        rows("a", 120, autoswap=[100, 100, 102]),
        rows("b", 120, autoswap=[100, 101]),
        rows("c", 120, autoswap=[100]),
        rows("d", 120, autoswap=[100, "NO_PLAN"]),
    )
    assert outcomes(differs_with_seed("autoswap", F(101, 100)), *groups) == "hf"


def test_computing_times() -> None:
    groups = (
        rows("a", 120, dynprog={"makespan": 99, "seconds": 60.0}),
        rows("b", 120, dynprog={"status": "NO_PLAN", "seconds": 61.0}),
    )
    assert outcomes(within_seconds("dynprog", 60.0), *groups) == "hf"


def test_numbers_and_names_for_people() -> None:
    assert number(F(12345, 10000)) == "1.234"
    assert number(F(10001, 10000)) == "1.000100"
    assert number(F(1)) == "1.000"
    assert title("dynprog:slots=500") == "DYNPROG:slots=500"
