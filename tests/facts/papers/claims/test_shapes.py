"""Claims about whole curves, on tables in which they hold, fail and stay open."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from offcert_lab.comparisons.points import points_of
from papers.claims.judge import Case
from papers.claims.predicates import Cases
from papers.claims.shapes import (
    balance,
    larger_advantage_at_low_memory,
    mean_improvement,
    memory_grows_with,
    optimal_at_highest,
    peaks_at_balance,
    slower,
    steadier,
    training_takes_about,
    wider_range,
    worse_with_depth,
)
from support.problems.campaign_tables import rows, table

F = Fraction
# At a rate of 2 out and back, terms of Proposition 3 are equal at 140 bytes: 60 ticks.
MEMORIES = (100, 120, 140, 160, 180)


def found(predicate: Cases, *groups: Any) -> list[Case]:
    return predicate(points_of(table(*groups), F(2)))


def outcomes(predicate: Cases, *groups: Any) -> str:
    return "".join(case.outcome[0] for case in found(predicate, *groups))


def curve(name: str, memories: Sequence[int] = MEMORIES, **methods: Sequence[Any]) -> list[Any]:
    """Return the rows of one problem with a makespan a limit for every method."""
    return [
        row
        for index, memory in enumerate(memories)
        for row in rows(name, memory, **{m: values[index] for m, values in methods.items()})
    ]


def test_the_advantage_at_low_memory_is_compared_with_that_at_high() -> None:
    flat = [110] * 5
    more_low = curve("a", vdnn=[220, 220, 500, 120, 120], greedy=flat)
    more_high = curve("b", vdnn=[120, 120, 500, 220, 220], greedy=flat)
    predicate = larger_advantage_at_low_memory("greedy", "vdnn")
    assert outcomes(predicate, more_low, more_high) == "hf"
    assert found(predicate, more_low)[0].text == "2.000 × up to 25 %, 1.091 × from 50 %"
    assert outcomes(predicate, curve("c", (100, 120), vdnn=[220, 220], greedy=[110, 110])) == ""


def test_improvements_are_over_the_better_of_the_methods_and_on_average() -> None:
    both = curve("a", (100, 120), vdnn=[210, 105], greedy=[200, 500], dynprog=["NO_PLAN", 100])
    predicate = mean_improvement(("greedy", "dynprog"), "vdnn", F(105, 100))
    assert outcomes(predicate, both) == "h"
    assert outcomes(mean_improvement(("greedy",), "vdnn", F(105, 100)), both) == "f"
    assert outcomes(predicate, curve("b", (100,), vdnn=["NO_PLAN"], greedy=[110])) == ""


@pytest.mark.parametrize(
    ("tflms", "certify", "outcome"),
    [
        (60, 60, "h"),
        (61, 60, "f"),
        ("NO_PLAN", 60, "f"),
        ("FAILED", 60, ""),
        (70, {"makespan": 70, "lower_bound": 65}, "o"),
    ],
)
def test_optimal_at_the_highest_limit_below_the_peak(
    tflms: Any, certify: Any, outcome: str
) -> None:
    groups = [*rows("a", 100, tflms=500), *rows("a", 190, tflms=tflms, certify=certify)]
    groups += rows("a", 200, tflms=99, certify=60)
    assert outcomes(optimal_at_highest("tflms"), groups) == outcome


def test_the_highest_limit_must_be_high() -> None:
    assert outcomes(optimal_at_highest("tflms"), rows("a", 174, tflms=60, certify=60)) == ""


def test_ranges_are_counted_in_limits() -> None:
    twice = curve("a", dynprog=["NO_PLAN", 99, 99, 99, 99], tflms=["NO_PLAN"] * 3 + [99, 99])
    less = curve("b", dynprog=["NO_PLAN", "NO_PLAN", 99, 99, 99], tflms=["NO_PLAN"] * 3 + [99, 99])
    none = curve("c", dynprog=["NO_PLAN"] * 5, tflms=["NO_PLAN"] * 5)
    assert outcomes(wider_range("dynprog", "tflms", 2), twice, less, none) == "hff"


def test_medians_of_computing_times_are_compared() -> None:
    def timed(*seconds: float) -> list[dict[str, Any]]:
        return [{"makespan": 200, "seconds": value} for value in seconds]

    quick = timed(0.125, 0.125, 0.125, 0.125, 9.0)
    groups = curve("a", greedy=quick, autoswap=timed(1.25, 1.25, 1.25, 0.1, 0.1))
    assert outcomes(slower("autoswap", "greedy", 10), groups) == "h"
    assert outcomes(slower("autoswap", "greedy", 11), groups) == "f"


def test_steadiness_is_the_spread_of_the_ratio_to_proposition_3() -> None:
    # Proposition 3 gives 100, 80, 60, 60 and 60 ticks.
    groups = curve("a", dynprog=[110, 88, 66, 66, 66], vdnn=[100, 80, 60, 60, 72])
    assert outcomes(steadier("dynprog", "vdnn"), groups) == "h"
    assert outcomes(steadier("vdnn", "dynprog"), groups) == "f"
    few = curve("a", (100, 120), dynprog=[110, 88], vdnn=[100, 80])
    assert outcomes(steadier("dynprog", "vdnn"), few) == ""


def test_both_terms_are_equal_where_moving_takes_as_long_as_computing() -> None:
    point = points_of(table(rows("a", 100, greedy=200)), F(2))[0]
    assert balance(point) == 40
    slow = points_of(table(rows("a", 100, greedy=9999, compute=101)), F(2))[0]
    assert balance(slow) is None
    fixed = points_of(table(rows("a", 100, greedy=9999, least=200)), F(2))[0]
    assert balance(fixed) is None


def test_a_peak_is_near_the_balance_or_it_is_not() -> None:
    near = curve("a", vdnn=[100, 80, 90, 66, 60])
    far = curve("b", vdnn=[190, 80, 90, 66, 60])
    assert outcomes(peaks_at_balance("vdnn"), near, far) == "hf"
    assert found(peaks_at_balance("vdnn"), far)[0].text == (
        "terms equal at 40 %, peak of 1.900 at 0 %"
    )


def test_a_peak_over_the_optimum_can_stay_open() -> None:
    greedy = [110, 88, 90, 66, 60]
    known = curve("a", greedy=greedy, certify=[100, 80, 60, 60, 60])
    bounds_fault = curve("b", greedy=greedy, certify=[100, 80, 90, 60, 60])
    wide = {"makespan": 90, "lower_bound": 60}
    unknown = curve("c", greedy=greedy, certify=[100, 80, wide, 60, 60])
    predicate = peaks_at_balance("greedy", to_optimum=True)
    # In b, the far 0 % and the near 20 % share the largest ratio.
    assert outcomes(predicate, known, bounds_fault, unknown) == "hhh"
    worse_far = [120, 88, 90, 66, 60]
    fault = curve("d", greedy=worse_far, certify=[100, 80, 90, 60, 60])
    unknown = curve("e", greedy=worse_far, certify=[100, 80, wide, 60, 60])
    assert outcomes(predicate, fault, unknown) == "fo"


def test_depth_compares_the_deepest_with_every_other() -> None:
    def of(depth: int, makespan: int, **more: Any) -> list[Any]:
        name, network = f"r{depth}-{more}", f"resnet{depth}"
        return rows(name, 120, dynprog=makespan, certify=100, network=network, **more)

    groups = (of(18, 104), of(34, 107), of(152, 105), of(18, 101, batch=4), of(50, 102, image=500))
    cases = found(worse_with_depth("dynprog", "resnet"), *groups)
    assert [(case.label, case.outcome[0]) for case in cases] == [
        ("resnet152 against resnet18, image 224, batch 8", "h"),
        ("resnet152 against resnet34, image 224, batch 8", "f"),
    ]
    assert outcomes(worse_with_depth("dynprog", "densenet"), *groups) == ""


def of_network(name: str, planned: Sequence[Any]) -> list[Any]:
    """Return the rows of a network whose optima are the bounds of Proposition 3."""
    return [
        row
        for memory, own, best in zip(MEMORIES, planned, (100, 80, 60, 60, 60), strict=True)
        for row in rows(f"{name}-x", memory, network=name, dynprog=own, certify=best)
    ]


def test_depth_is_compared_where_both_have_plans() -> None:
    deep = of_network("resnet50", [150, "NO_PLAN", 63, 60, 60])
    # Of what the deep network does at 0 % nothing is known for the other.
    shallow = of_network("resnet18", ["NO_PLAN", 90, 66, 66, 60])
    (case,) = found(worse_with_depth("dynprog", "resnet"), deep, shallow)
    assert case.outcome == "fails"
    assert case.text == "1.017 × the best, against 1.067 ×, on average over 3 limits"
    apart = of_network("resnet18", ["NO_PLAN", 90, *["NO_PLAN"] * 3])
    assert outcomes(worse_with_depth("dynprog", "resnet"), deep, apart) == ""


def test_networks_of_equally_many_stages_are_no_comparison_of_depths() -> None:
    def of(depth: int, ending: str) -> list[Any]:
        name, own = f"densenet{depth}", 100 + depth
        return rows(f"{name}-{ending}", 120, network=name, dynprog=own, certify=100)

    predicate = worse_with_depth("dynprog", "densenet")
    assert outcomes(predicate, of(121, "chain"), of(201, "chain")) == "h"
    assert outcomes(predicate, of(121, "blocks"), of(201, "blocks")) == ""


@pytest.mark.parametrize(("lower", "expected"), [(70, "h"), (69, "o")])
def test_depth_stays_open_where_the_optimum_could_change_it(lower: int, expected: str) -> None:
    """The deep network is 72/70 from its optimum, the shallow one 71/70 to 71/`lower`."""
    certified = {"makespan": 70, "lower_bound": lower}
    deep = rows(
        "d", 160, network="resnet50", dynprog=72, certify={"makespan": 70, "lower_bound": 70}
    )
    shallow = rows("s", 160, network="resnet18", dynprog=71, certify=certified)
    assert outcomes(worse_with_depth("dynprog", "resnet"), deep, shallow) == expected


def test_memory_grows_with_a_power_of_the_image() -> None:
    def of(image: int, peak: int, batch: int = 8) -> list[Any]:
        name = f"n-{image}-{batch}"
        return rows(name, peak, peak=peak, image=image, batch=batch, greedy=10**6)

    groups = (of(100, 1000), of(200, 4000), of(400, 32000), of(300, 5000, batch=4))
    cases = found(memory_grows_with(2), *groups)
    assert [(case.label, case.outcome[0]) for case in cases] == [
        ("resnet18, batch 8, 100 to 200 pixels", "h"),
        ("resnet18, batch 8, 100 to 400 pixels", "f"),
        ("resnet18, batch 8, 200 to 400 pixels", "f"),
    ]
    assert cases[2].text == "power 3.00"


def test_one_peak_is_compared_with_a_stated_size() -> None:
    # 108 bytes of weights, gradients and momenta come on top.
    predicate = training_takes_about("resnet101", 224, 32, 400, 41, 9)
    groups = [
        rows(name, 120, network="resnet101", batch=batch, greedy=999, peak=peak)
        for name, batch, peak in (("a", 32, 251), ("b", 32, 250), ("c", 16, 292))
    ]
    assert outcomes(predicate, *groups) == "hf"
