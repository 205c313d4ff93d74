"""Large residences first: what counts as small, and that completing them moves none up."""

from typing import Any

import pytest

from offcert.certification.search_steps import placement as placement_apart
from offcert.certification.search_steps.placement import apart, completed, eject_apart, place_apart
from offcert.formulations.placement.skyline import skyline_search
from offcert.heuristics.placement.in_order import greedy_by_area
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    Residence,
    placement_faults,
)
from support.problems.placements import random_placement_problem
from support.seeds import by_seeds


def test_small_is_what_takes_little_of_the_load() -> None:
    rows = [Residence("large", 5000, 0, 4), Residence("other", 5000, 2, 6)]
    rows += [Residence(f"small{k}", 10, k, k + 1) for k in range(6)]
    large, small = apart(PlacementProblem("apart", rows))
    assert (large, small) == ([0, 1], [2, 3, 4, 5, 6, 7])


@by_seeds(0, 40, 20)
def test_completing_a_placement_moves_nothing_up(seeds: range) -> None:
    for seed in seeds:
        problem = random_placement_problem(seed)
        large = [index for index, size in enumerate(problem.sizes) if size >= 4]
        small = [index for index, size in enumerate(problem.sizes) if size < 4]
        part = PlacementProblem(
            "part", [problem.residences[index] for index in large], None, problem.alignment
        )
        found = skyline_search(part, time_limit=60).placement
        assert found is not None
        whole = completed(problem, large, small, found)
        assert placement_faults(problem, whole) == []
        for index, address in zip(large, found.addresses, strict=True):
            assert whole.addresses[index] <= address


def mixed() -> PlacementProblem:
    rows = [Residence(f"r{k}", 5000 + 100 * k, k, k + 3) for k in range(6)]
    rows += [Residence(f"s{k}", 3, k, k + 2) for k in range(6)]
    return PlacementProblem("steps", rows)


def test_every_placement_is_handed_on_and_valid() -> None:
    problem = mixed()
    found: list[Placement] = []
    place_apart(problem, 5.0, 0, found.append)
    assert found
    assert all(placement_faults(problem, each) == [] for each in found)
    assert found[-1].pool(problem) == problem.load


def test_skyline_looks_close_to_the_load_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int | None, bool]] = []

    def search(problem: PlacementProblem, *, hint: Placement | None = None, **options: Any) -> Any:
        asked.append((problem.capacity, hint is None))
        return skyline_search(problem, hint=hint, **options)

    monkeypatch.setattr(placement_apart, "skyline_search", search)
    problem = mixed()
    large, _ = apart(problem)
    load = PlacementProblem("", [problem.residences[index] for index in large]).load
    place_apart(problem, 5.0, 0, [].append)
    assert asked == [(load + load * 8 // 1000, True), (None, False)]
    asked.clear()
    # With a capacity, that is what is looked for.
    place_apart(problem.with_capacity(20_000), 5.0, 0, [].append)
    assert asked == [(20_000 - 6 * 3, True)]


def test_ejection_begins_with_what_is_known() -> None:
    problem = mixed()
    found: list[Placement] = []
    place_apart(problem, 5.0, 0, found.append)
    # There is no time to find anything.
    again: list[Placement] = []
    eject_apart(problem, 0.0, 0, again.append, found[-1])
    assert [each.pool(problem) for each in again] == [problem.load]
    # What is far above the load is not begun with.
    far: list[Placement] = []
    stacked = Placement(20_000 * number for number in range(len(problem.residences)))
    eject_apart(problem, 0.0, 0, far.append, stacked)
    large, _ = apart(problem)
    part = PlacementProblem("", [problem.residences[index] for index in large])
    assert far[-1].pool(problem) < stacked.pool(problem)
    assert [far[-1].addresses[index] for index in large] == list(greedy_by_area(part).addresses)
