"""Large residences first: what counts as small, and that completing them moves none up."""

from placement_cases import random_placement_problem

from offcert.certify.placement_apart import apart, completed, place_apart
from offcert.core.placement import Placement, PlacementProblem, Residence
from offcert.formulations.placement.skyline_search import skyline_search
from offcert.verify.placement.overlap import placement_faults


def test_small_is_what_takes_little_of_the_load() -> None:
    rows = [Residence("large", 5000, 0, 4), Residence("other", 5000, 2, 6)]
    rows += [Residence(f"small{k}", 10, k, k + 1) for k in range(6)]
    large, small = apart(PlacementProblem("apart", rows))
    assert (large, small) == ([0, 1], [2, 3, 4, 5, 6, 7])


def test_completing_a_placement_moves_nothing_up() -> None:
    for seed in range(40):
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


def test_every_placement_is_handed_on_and_valid() -> None:
    rows = [Residence(f"r{k}", 5000 + 100 * k, k, k + 3) for k in range(6)]
    rows += [Residence(f"s{k}", 3, k, k + 2) for k in range(6)]
    problem = PlacementProblem("steps", rows)
    found: list[Placement] = []
    place_apart(problem, 5.0, 0, found.append)
    assert found
    assert all(placement_faults(problem, each) == [] for each in found)
    assert found[-1].pool(problem) == problem.load
