"""The paper's claims: each is decided by the cells that it is about, one way and the other."""

from fractions import Fraction
from typing import Any

import pytest

from offcert_lab.comparisons.points import points_of
from papers.claims.judge import Verdict
from papers.claims.offloading import CLAIMS, SLOTS
from support.problems.campaign_tables import rows, table

BY_KEY = {claim.key: claim for claim in CLAIMS}
MEMORIES = (100, 110, 120, 140, 160, 180)
# The bound of Proposition 3 at these, at a rate of 2.
PROP3 = (100, 90, 80, 60, 60, 60)
# A table on which every claim is right, and what must change for each to be wrong.
GOOD: dict[str, list[Any]] = {
    "certify": [100, 90, 80, 63, 60, 60],
    "dynprog": [101, 91, 80, 64, 60, 60],
    "greedy": [107, 97, 86, 75, 63, 60],
    "vdnn": [160, 150, 140, 120, 70, 66],
    "tflms": ["NO_PLAN", "NO_PLAN", "NO_PLAN", "NO_PLAN", "NO_PLAN", 60],
    "autoswap": [[107, 112], [97, 97], [86, 86], [75, 63], [60, 60], [60, 60]],
    SLOTS: [100, 90, 80, 63, 60, 60],
}
WRONG: dict[str, dict[str, list[Any]]] = {
    "greedy-vdnn": {"vdnn": [160, 150, 140, 74, 70, 66]},
    "dynprog-vdnn": {"vdnn": [160, 150, 140, 63, 70, 66]},
    "greedy-vdnn-low-memory": {"vdnn": [110, 100, 90, 120, 90, 90]},
    "dynprog-vdnn-low-memory": {"vdnn": [110, 100, 90, 120, 90, 90]},
    "dynprog-greedy": {"dynprog": [108, 98, 88, 76, 60, 60]},
    "dynprog-significant": {"greedy": [101, 91, 80, 75, 60, 60]},
    "dynprog-greedy-close": {"greedy": [120, 110, 99, 99, 99, 99]},
    "dynprog-densenet": {"dynprog": [103, 93, 83, 66, 60, 60]},
    "dynprog-prop3": {"dynprog": [101, 91, 80, 72, 60, 60]},
    "dynprog-throughput": {"dynprog": [101, 91, 80, 76, 60, 60]},
    "dynprog-plans": {"dynprog": ["NO_PLAN", 91, 80, 64, 60, 60]},
    "dynprog-time": {"dynprog": [{"makespan": 200, "seconds": 61.0}] * 6},
    "dynprog-slots": {"dynprog": [120, 110, 100, 80, 60, 60]},
    "greedy-good": {"greedy": [130, 120, 110, 90, 90, 60]},
    "greedy-plans": {"greedy": [107, 97, "NO_PLAN", 75, 63, 60]},
    "significant-improvement": {"vdnn": [101, 91, 80, 64, 60, 60]},
    "tflms-high-memory": {"tflms": ["NO_PLAN"] * 5 + [61]},
    "tflms-low-memory": {"tflms": [300, 300, 300, 200, 90, 60]},
    "tflms-range": {"tflms": [300, 300, 300, 200, 90, 60]},
    "autoswap-greedy": {"autoswap": [[101, 101]] * 3 + [[64, 64]] * 3},
    "autoswap-cost": {"greedy": [{"makespan": 200, "seconds": 0.5}] * 6},
    "autoswap-random": {"autoswap": [[107, 107]] * 6},
    "spike-greedy": {"greedy": [190, 97, 86, 75, 63, 60]},
    "spike-vdnn": {"vdnn": [260, 150, 140, 120, 70, 66]},
    "spike-difficult": {"greedy": [190, 97, 86, 75, 63, 60]},
    "dynprog-stable-vdnn": {"vdnn": [110, 99, 88, 66, 66, 66]},
    "dynprog-stable-autoswap": {"autoswap": [[100], [90], [80], [63], [63], [63]]},
}
# These are about several problems, or about what no heuristic decides.
SEVERAL = {"dynprog-depth-resnet", "dynprog-depth-densenet"}
SEVERAL |= {"memory-quadratic", "memory-resnet101", "batch-efficiency"}


def verdict(key: str, changes: dict[str, list[Any]]) -> Verdict:
    methods = GOOD | changes
    timed = {"autoswap": 1.0}
    groups = []
    for index, memory in enumerate(MEMORIES):
        found = {name: values[index] for name, values in methods.items()}
        made = rows("densenet121-x", memory, network="densenet121", **found)
        for row in made:
            if row["method"] in timed:
                row["seconds"] = timed[row["method"]]
        groups.append(made)
    return BY_KEY[key].judge(points_of(table(*groups), Fraction(2))).verdict


def test_every_claim_is_tried_both_ways() -> None:
    assert set(WRONG) | SEVERAL == set(BY_KEY)
    assert len(BY_KEY) == len(CLAIMS)


# Greedy cannot be near DYNPROG and far from it at once.
APART = {"dynprog-greedy-close": {"greedy": [102, 92, 81, 65, 60, 60]}}


@pytest.mark.parametrize("key", WRONG)
def test_a_claim_is_confirmed_where_it_is_right(key: str) -> None:
    assert verdict(key, APART.get(key, {})) is Verdict.CONFIRMED


@pytest.mark.parametrize("key", WRONG)
def test_a_claim_is_not_confirmed_where_it_is_wrong(key: str) -> None:
    assert verdict(key, WRONG[key]) in (Verdict.REFUTED, Verdict.PARTLY)


@pytest.mark.parametrize("key", BY_KEY)
def test_a_claim_cannot_be_decided_without_its_cells(key: str) -> None:
    empty = points_of(table(rows("a", 120, bounds={"status": "UNKNOWN"})), Fraction(2))
    assert BY_KEY[key].judge(empty).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("key", ["dynprog-throughput", "greedy-good", "dynprog-densenet"])
def test_comparisons_with_an_unknown_optimum_are_left_open(key: str) -> None:
    wide = [{"makespan": level + 20, "lower_bound": level} for level in PROP3]
    own = [level + 19 for level in PROP3]
    changes = dict.fromkeys(GOOD, own) | {"certify": wide, "tflms": own}
    assert verdict(key, changes) is Verdict.UNDECIDED


def depth(shallow: int, deep: int, family: str) -> list[Any]:
    return [
        rows(f"{family}{d}", 120, network=f"{family}{d}", certify=100, dynprog=makespan)
        for d, makespan in ((121, shallow), (201, deep))
    ]


@pytest.mark.parametrize("family", ["resnet", "densenet"])
def test_depth_both_ways(family: str) -> None:
    claim = BY_KEY[f"dynprog-depth-{family}"]
    for shallow, deep, expected in (
        (101, 102, Verdict.CONFIRMED),
        (102, 101, Verdict.REFUTED),
        (101, 101, Verdict.REFUTED),
    ):
        made = points_of(table(*depth(shallow, deep, family)), Fraction(2))
        assert claim.judge(made).verdict is expected


@pytest.mark.parametrize(
    ("peak", "expected"), [(45 * 10**8, Verdict.CONFIRMED), (10**9, Verdict.REFUTED)]
)
def test_the_memory_of_resnet_101(peak: int, expected: Verdict) -> None:
    made = rows("r", peak, network="resnet101", batch=32, peak=peak, greedy=10**10)
    assert BY_KEY["memory-resnet101"].judge(points_of(table(made), Fraction(2))).verdict is expected


@pytest.mark.parametrize(
    ("compute", "expected"), [(119, Verdict.CONFIRMED), (120, Verdict.REFUTED)]
)
def test_larger_batches(compute: int, expected: Verdict) -> None:
    made = table(
        rows("a", 200, greedy=999),
        rows("b", 200, batch=16, compute=compute, greedy=999),
        rows("b-chain", 200, batch=4, compute=9, greedy=999),
    )
    claim = BY_KEY["batch-efficiency"]
    assert claim.judge(points_of(made, Fraction(2))).verdict is expected


@pytest.mark.parametrize(("peak", "expected"), [(800, Verdict.CONFIRMED), (400, Verdict.REFUTED)])
def test_quadratic_memory(peak: int, expected: Verdict) -> None:
    made = table(
        rows("a", 200, greedy=99),
        rows("b", peak, peak=peak, image=448, greedy=99),
    )
    assert BY_KEY["memory-quadratic"].judge(points_of(made, Fraction(2))).verdict is expected
