"""The benchmark that separates bounds: what it calls impossible is, and what it prints is found."""

import random

from benchmarks.separations import NEVER_MORE, document, never_more, pairs, separate, table
from offcert_lab.hunts.adversarial.numbers import Box, draw
from offcert_lab.hunts.adversarial.values import BOUNDS


def test_what_is_called_impossible_does_not_happen() -> None:
    """On 200 random chains; every pair of which that is not claimed somewhere is the other way."""
    rng = random.Random(5)
    cheap = [name for name in BOUNDS if name not in ("stage-milp", "fluid-milp")]
    below: set[tuple[str, str]] = set()
    for number in range(200):
        problem = draw(rng, Box(range(2, 5), 12, 1)).problem()
        names = list(BOUNDS) if number % 8 == 0 else cheap
        values = {name: BOUNDS[name](problem) for name in names}
        for one, two in NEVER_MORE:
            first, second = values.get(one), values.get(two)
            if first is not None and second is not None:
                assert first <= second, (one, two, problem)
                if first < second:
                    below.add((one, two))
    assert len(below) >= 5


def test_what_follows_from_two_reasons_is_impossible_too() -> None:
    impossible = never_more()
    assert ("prop3", "pivot") in impossible
    assert ("fractional", "fluid-milp") in impossible
    assert ("pivot", "prop3") not in impossible
    assert not impossible & set(pairs())


def test_a_pair_that_is_separated_is_shown_with_its_chain() -> None:
    row = separate("fractional-subset-sum", "fractional", 60, 0)
    assert row["ratio"] > 1
    over, under = row["values"]
    assert row["ratio"] == over / under
    assert row["steps"] == 60
    page = document([row], "the command")
    assert f"{over} / {under} | forward " in page
    lines = table([row], ["fractional-subset-sum"], ["fractional", "pivot", "prop3"]).splitlines()
    assert lines[-1] == f"| `fractional-subset-sum` | {row['ratio']:.2f} | ≤ |  |"


def test_plans_are_measured_the_other_way_round() -> None:
    row = separate("sequential", "optimum", 40, 0)
    over, under = row["values"]
    assert over > under
