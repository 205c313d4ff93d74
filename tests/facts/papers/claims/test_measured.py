"""The tables beside the claims."""

from fractions import Fraction
from typing import Any

from offcert_lab.comparisons.points import Point, points_of
from papers.claims.measured import (
    open_lines,
    per_image_lines,
    ranking_lines,
    scaling_lines,
    yardstick_lines,
)
from support.problems.campaign_tables import rows, table


def points(*groups: Any) -> list[Point]:
    return points_of(table(*groups), Fraction(2))


def test_ranks_count_shared_firsts_and_plans() -> None:
    lines = ranking_lines(
        points(
            rows("a", 120, certify=80, dynprog=88, greedy=88),
            rows("b", 120, certify=80, dynprog="NO_PLAN", greedy=100),
            rows("c", 120, certify=80, dynprog=80, greedy=92),
            rows("a", 200, certify=60, dynprog=60, greedy=60),
        )
    )
    assert lines[0].startswith("| memory | problems | DYNPROG best / plans / mean ratio | GREEDY")
    assert lines[2:] == ["| 20 % | 3 | 2 / 2 / 1.050 | 2 / 3 / 1.167 |"]


def test_what_is_open_is_counted_by_network() -> None:
    lines = open_lines(
        points(
            rows("a", 120, certify=120, network="resnet18"),
            rows("b", 120, certify={"makespan": 100, "lower_bound": 95}, network="resnet18"),
            rows("c", 120, certify={"makespan": 100, "lower_bound": 99}, network="resnet18"),
            rows("d", 120, certify={"status": "UNKNOWN"}, network="resnet34"),
            rows("d", 200, certify=60, network="resnet34"),
        )
    )
    assert lines[2:] == [
        "| resnet18 | 3 | 1 | 0 | 3 % | 5 % |",
        "| resnet34 | 1 | 0 | 1 | – | – |",
    ]


def test_the_yardstick_says_how_far_the_best_is_from_proposition_3() -> None:
    lines = yardstick_lines(
        points(
            rows("a", 120, certify=120),
            rows("b", 120, certify={"makespan": 100, "lower_bound": 95}),
        )
    )
    assert lines[2:] == ["| 20 % | 2 | 1 | 5 % | 1.375 | 1.500 |"]


def test_scaling_compares_what_differs_in_one_thing_only() -> None:
    groups = (
        rows("a", 120, certify=80, batch=8),
        rows("b", 120, certify=88, batch=16),
        rows("c", 120, certify=160, batch=8, image=500),
        rows("a-chain", 120, certify=240, batch=4),
    )
    (text,) = scaling_lines(points(*groups), "batch")
    assert "by 10 % on average over 1 networks and limits, by 10 % at most (b at 20 %)" in text
    (text,) = scaling_lines(points(*groups), "image")
    assert "by 1e+02 % at most (c at 20 %)" in text
    (text,) = scaling_lines(points(*groups[:1]), "batch")
    assert text == "The table has no two problems that differ in nothing but the batch."


def test_per_image_numbers_say_how_far_from_proportional_batches_are() -> None:
    groups = (
        rows("a", 120, certify=9000, batch=8, peak=800, compute=80),
        rows("b", 120, certify=9000, batch=16, peak=2000, compute=160),
        rows("c", 120, certify=9000, batch=32, image=500),
    )
    (text,) = per_image_lines(points(*groups))
    assert "memory by 25 % on average over 1 networks and image sizes, by 25 % at most; " in text
    assert text.endswith(
        "the time of computing by 0 % on average over 1 networks and image sizes, by 0 % at most."
    )
    assert per_image_lines(points(*groups[1:])) == []
