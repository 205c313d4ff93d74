"""What is drawn, as numbers."""

import math
from fractions import Fraction
from typing import Any

import pytest

from offcert.core.errors import InputError
from offcert_lab.comparisons.curves import Curves, Quantity, curves_of
from offcert_lab.comparisons.points import points_of
from support.problems.campaign_tables import rows, table

NAN = math.nan


def curves(*groups: Any, what: Quantity = Quantity.MAKESPAN) -> Curves:
    return curves_of(points_of(table(*groups), Fraction(2)), what)


def same(line: tuple[float, ...], expected: list[float]) -> bool:
    return list(line) == pytest.approx(expected, nan_ok=True)


def example(what: Quantity = Quantity.MAKESPAN) -> Curves:
    open_ = {"makespan": 100, "lower_bound": 90, "proved_bound": 85}
    return curves(
        rows("a", 80, certify="INFEASIBLE", greedy="NO_PLAN"),
        rows("a", 120, certify=open_, greedy=160, tflms="NO_PLAN", zz="FAILED"),
        rows("a", 160, certify=66, greedy="NO_PLAN", tflms="NO_PLAN", zz=90),
        rows("a", 200, certify=60, greedy=60, tflms=60, zz=60),
        what=what,
    )


def test_makespans_are_relative_to_proposition_3_with_gaps_where_there_is_no_plan() -> None:
    found = example()
    assert found.percents == (20, 60, 100)
    assert list(found.methods) == ["greedy", "tflms", "zz"]
    assert same(found.methods["greedy"], [160 / 80, NAN, 1])
    assert same(found.methods["tflms"], [NAN, NAN, 1])
    assert same(found.methods["zz"], [NAN, 1.5, 1])
    assert found.failed == {"zz": (20,)}
    assert found.infeasible == (-20,)
    assert found.ends == (100, 200)


def test_the_band_goes_from_the_best_schedule_down_to_the_proved_bound() -> None:
    found = example()
    assert same(found.best, [100 / 80, 1.1, 1])
    assert same(found.proved, [85 / 80, 1.1, 1])
    assert same(found.optimum, [NAN, 1.1, 1])
    assert (found.lowest_level, found.highest_level) == (1, 2)


def test_throughput_is_the_batch_by_the_makespan_and_its_band_goes_up() -> None:
    found = example(Quantity.THROUGHPUT)
    assert same(found.methods["greedy"], [8e9 / 160, NAN, 8e9 / 60])
    assert same(found.best, [8e7, 8e9 / 66, 8e9 / 60])
    assert found.proved[0] == pytest.approx(8e9 / 85)
    assert found.proved[0] > found.best[0]


def test_a_heuristic_better_than_certify_is_the_best_schedule() -> None:
    found = curves(rows("a", 120, certify={"makespan": 99, "lower_bound": 84}, greedy=84))
    assert same(found.best, [84 / 80])
    assert same(found.optimum, [84 / 80])


def test_the_band_is_never_above_the_best_schedule() -> None:
    bound = {"makespan": 99, "lower_bound": 98}
    with pytest.raises(InputError, match="a lower bound of 98 contradicts a makespan of 97"):
        curves(rows("a", 120, certify=bound, greedy=97))


def test_attested_bounds_make_neither_an_optimum_nor_a_band() -> None:
    found = curves(rows("a", 120, certify={"makespan": 99, "lower_bound": 99, "proved_bound": 90}))
    assert same(found.optimum, [math.nan])
    assert same(found.proved, [90 / 80])


def test_papers_methods_come_first_and_bounds_alone_not_at_all() -> None:
    found = curves(
        rows("a", 120, aa=99, bounds={"status": "UNKNOWN"}, vdnn=99, autoswap=99, dynprog=99)
    )
    assert list(found.methods) == ["dynprog", "vdnn", "autoswap", "aa"]


def test_throughput_needs_a_batch_and_a_makespan() -> None:
    with pytest.raises(InputError, match='does not say the batch of "a"'):
        curves(rows("a", 120, greedy=99, batch=None), what=Quantity.THROUGHPUT)
    with pytest.raises(InputError, match="a at 100 %: a step of 0 ticks"):
        curves(rows("a", 200, greedy=0, compute=0), what=Quantity.THROUGHPUT)


def test_what_is_far_beyond_all_others_is_off_the_scale() -> None:
    def top(*makespans: int, what: Quantity = Quantity.MAKESPAN) -> float:
        found = {f"m{number}": makespan for number, makespan in enumerate(makespans)}
        return curves(rows("a", 120, certify=80, **found), what=what).visible_top

    # Proposition 3 gives 80 ticks: others reach 1.5, so 2.5 is still shown and more is not.
    assert top(120, 200) == 2.5
    assert top(120, 201) == pytest.approx(1.7)
    assert top(120, 200, 201) == 201 / 80
    # Others within a tenth are as good as optimal.
    assert top(80, 104) == 1.3
    assert top(81, 105) == pytest.approx(1.14)
    assert top(240) == pytest.approx(1.14)
    assert top(120, 400, what=Quantity.THROUGHPUT) == 8e9 / 80


def test_nothing_to_draw_is_no_error() -> None:
    found = curves(rows("a", 80, certify="INFEASIBLE"))
    assert found.percents == ()
    assert math.isnan(found.lowest_level)
    assert math.isnan(found.visible_top)
