"""Residences that do not fit into less: against brute force, and forged."""

import random
from collections.abc import Sequence

import pytest

from offcert.core.result import Bound, Evidence
from offcert.formulations.placement.skyline import skyline_search
from offcert.proofs.placement_certificate import PLACEMENT_PROOFS
from offcert.questions.placement.problem import PlacementProblem, Residence
from offcert.verification import placement_bounds as stacks
from offcert.verification.findings import recheck
from offcert.verification.limits import UNLIMITED, Allowance, BeyondLimitsError, Limits
from support.oracles.placement import least_pool
from support.problems.placements import random_placement_problem
from support.problems.tight_placements import crowded_problem, tight_problem
from support.seeds import by_seeds

# Each with its least pool, which is above the load; sizes, first and last section.
ABOVE_LOAD = (
    (
        7,
        (3, 7, 8),
        (3, 5, 8),
        (3, 1, 3),
        (1, 4, 6),
        (1, 3, 6),
        (3, 2, 4),
        (1, 4, 7),
        (1, 3, 5),
    ),
    (
        9,
        (4, 2, 7),
        (2, 4, 8),
        (3, 8, 9),
        (5, 7, 9),
        (1, 4, 8),
        (5, 0, 2),
        (2, 1, 3),
        (1, 3, 6),
        (2, 2, 4),
    ),
)
CASES = [
    (PlacementProblem("", [Residence("", *row) for row in rows]), least)
    for least, *rows in ABOVE_LOAD
]


def fault(
    problem: PlacementProblem,
    value: int,
    residences: Sequence[object] | None = None,
    allowance: Allowance | None = None,
) -> str | None:
    chosen = range(len(problem.residences)) if residences is None else residences
    details = {"residences": list(chosen)}
    bound = Bound("infeasible-subset", value, Evidence.PROVED, details)
    return recheck(bound, problem, allowance or UNLIMITED.begin(), PLACEMENT_PROOFS)


def tiny(seed: int) -> PlacementProblem:
    """Return a few residences in a few sections, often without a section that is not full."""
    rng = random.Random(f"subsets {seed}")
    sections, height = rng.randint(2, 7), rng.randint(3, 7)
    loads, rows = [0] * sections, []
    while len(rows) < 8 and rng.random() < 0.98:
        start = rng.randrange(sections)
        end = min(sections, start + rng.randint(1, 4))
        size = rng.randint(1, 4)
        if max(loads[start:end]) + size <= height:
            loads[start:end] = [load + size for load in loads[start:end]]
            rows.append(Residence("", size, start, end))
    return PlacementProblem("tiny", rows, None, rng.choice((1, 1, 2)))


@pytest.mark.slow
@by_seeds(0, 120, 30)
def test_what_is_established_is_the_least_pool_of_brute_force(seeds: range) -> None:
    for seed in seeds:
        problem = tiny(seed) if seed % 2 else random_placement_problem(seed, most=7, span=7)
        least = least_pool(problem)
        assert fault(problem, least) is None
        said = fault(problem, least + 1)
        assert said is not None
        assert "they fit into" in said


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "least"), CASES)
def test_pools_above_the_load_are_established(problem: PlacementProblem, least: int) -> None:
    assert least_pool(problem) == least > problem.load
    assert fault(problem, least) is None
    assert fault(problem, least + 1) is not None
    # None of the residences can be missed, so a part of them shows nothing.
    count = len(problem.residences)
    for missing in range(count):
        others = [index for index in range(count) if index != missing]
        assert fault(problem, least, others) is not None


@pytest.mark.parametrize(("problem", "least"), CASES)
def test_units_and_alignments_round_up(problem: PlacementProblem, least: int) -> None:
    rows = [Residence("", 24 * each.size, each.start, each.end) for each in problem.residences]
    odd = Residence("", 5, 90, 91)
    larger = PlacementProblem("", [*rows, odd])
    # One unit of what divides the sizes is 24 bytes, without the one that ends elsewhere.
    assert fault(larger, 24 * least, range(len(rows))) is None
    assert fault(larger, 24 * least + 1, range(len(rows))) is not None
    less = [Residence("", each.size - 3, each.start, each.end) for each in rows]
    assert fault(PlacementProblem("", less, None, 24), 24 * least) is None
    assert fault(PlacementProblem("", less, None, 24), 24 * least + 1) is not None


@pytest.mark.parametrize("seed", [0, 5, 9, 21, 54, 275, 578, 769])
def test_it_agrees_with_the_search_on_larger_problems(seed: int) -> None:
    problem = tight_problem(seed) if seed % 2 else crowded_problem(seed)
    outcome = skyline_search(problem)
    assert outcome.complete
    assert outcome.placement is not None
    least = outcome.placement.pool(problem)
    assert fault(problem, least) is None
    assert "they fit into" in (fault(problem, least + 1) or "")


@pytest.mark.parametrize(
    ("residences", "sentence"),
    [
        ((0, 1, 8), "there are 8 residences, so none is number 8"),
        ((0, 1, 10**30), "must fit into 64 bits"),
        ((0, 1, 1), "a residence is named twice"),
        ((0, 1, -1), "residences"),
        ((0, 1.0), "residences"),
        ((True, 1), "residences"),
        ((), "they fit into 6 bytes"),
    ],
)
def test_forged_subsets_are_refused(residences: Sequence[object], sentence: str) -> None:
    problem, least = CASES[0]
    said = fault(problem, least, residences)
    assert said is not None
    assert sentence in said


def test_missing_and_unknown_fields_are_refused() -> None:
    problem, least = CASES[0]
    details: dict[str, object]
    for details in ({}, {"residences": list(range(8)), "more": 1}):
        bound = Bound("infeasible-subset", least, Evidence.PROVED, details)
        assert recheck(bound, problem, UNLIMITED.begin(), PLACEMENT_PROOFS) is not None


def test_limits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, least = CASES[0]
    with pytest.raises(BeyondLimitsError):
        fault(problem, least, allowance=Limits(memory=1000).begin())
    with pytest.raises(BeyondLimitsError):
        fault(problem, least, allowance=Limits(seconds=1e-9).begin())
    # Choices that are refuted at once make no parts to be counted.
    with pytest.raises(BeyondLimitsError):
        stacks._Decision(stacks.PartialPlacement(((0, 1, 1), (1, 2, 1)), (0, 0), 1)).choose(
            Limits(seconds=1e-9).begin()
        )
    monkeypatch.setattr(stacks, "MOST_PARTS", 3)
    said = fault(problem, least)
    assert said is not None
    assert "more than 3 parts would have to be looked at" in said


@pytest.mark.slow
def test_deep_problems_end_without_deep_recursion() -> None:
    """Each of these stands upon the one before, a section later."""
    rows = [Residence("", 1 + index % 3, index, index + 2) for index in range(250)]
    problem = PlacementProblem("", rows)
    assert fault(problem, problem.load) is None
    assert "they fit into" in (fault(problem, 3 * problem.load) or "")
