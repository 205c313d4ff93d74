"""The checker of addresses against a comparison of all bytes at all times, and its sentences."""

import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcert.proofs.kinds.computed import Computed
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    Residence,
    placement_faults,
)
from offcert.verification.limits import UNLIMITED
from offcert.verification.placement_bounds import load


@st.composite
def placed(draw: st.DrawFn) -> tuple[PlacementProblem, Placement]:
    """Draw a problem with any addresses, mostly such that something overlaps."""
    count = draw(st.integers(0, 7))
    rows = []
    for index in range(count):
        start = draw(st.integers(-2, 8))
        rows.append(
            Residence(f"r{index}", draw(st.integers(0, 5)), start, start + draw(st.integers(1, 6)))
        )
    alignment = draw(st.sampled_from((1, 1, 2, 3)))
    capacity = draw(st.none() | st.integers(0, 20))
    addresses = [draw(st.integers(-1, 12)) for _ in rows]
    if draw(st.booleans()):
        addresses = [address * alignment for address in addresses]
    return PlacementProblem("p", rows, capacity, alignment), Placement(addresses)


def sound(problem: PlacementProblem, placement: Placement) -> bool:
    """Look at every byte at every time, by the definition."""
    for address, size in zip(placement.addresses, problem.sizes, strict=True):
        beyond = problem.capacity is not None and address + size > problem.capacity
        if address < 0 or beyond or address % problem.alignment:
            return False
    cells = [
        {(moment, byte) for moment in range(r.start, r.end) for byte in range(a, a + size)}
        for r, a, size in zip(problem.residences, placement.addresses, problem.sizes, strict=True)
    ]
    return all(not first & second for first, second in combinations(cells, 2))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(placed())
def test_a_placement_is_accepted_exactly_if_no_byte_is_taken_twice(
    case: tuple[PlacementProblem, Placement],
) -> None:
    problem, placement = case
    assert (placement_faults(problem, placement) == []) == sound(problem, placement)


def rows(*sizes: int) -> list[Residence]:
    return [Residence(f"x{index}", size, index, index + 2) for index, size in enumerate(sizes)]


def test_a_pool_one_byte_too_small_is_refused_with_the_tensors_concerned() -> None:
    placement = Placement([0, 4, 0])
    assert placement_faults(PlacementProblem("p", rows(4, 6, 3), 10), placement) == []
    assert placement_faults(PlacementProblem("p", rows(4, 6, 3), 9), placement) == [
        "x1 (residence 1, times 1 to 3, bytes 4 to 10) ends 1 bytes beyond the pool of 9"
    ]


@pytest.mark.parametrize(
    ("addresses", "alignment", "fault"),
    [
        (
            [0, 3, 0],
            1,
            r"^x0 \(residence 0, times 0 to 2, bytes 0 to 4\) overlaps x1 \(residence 1,",
        ),
        (
            [0, 4, 9],
            1,
            r"^x1 .*bytes 4 to 10\) overlaps x2 \(residence 2, times 2 to 4, bytes 9 to",
        ),
        ([0, 4, -1], 1, "^x2 .*bytes -1 to 2.* begins before the pool"),
        ([0, 4, 0], 3, "^x1 .*bytes 4 to 10.* does not begin at a multiple of 3"),
        ([0, 3, 0], 3, r"^x0 .*bytes 0 to 6\) overlaps x1"),
        ([0, 4], 1, "there are 2 addresses for 3 residences"),
        ([0, 4, 0.0], 1, "residence 2 has the address 0.0, which is no integer"),
        ([0, 4, True], 1, "residence 2 has the address True, which is no integer"),
    ],
)
def test_faults_name_residences_times_and_bytes(
    addresses: list[int], alignment: int, fault: str
) -> None:
    problem = PlacementProblem("p", rows(4, 6, 3), None, alignment)
    found, *_ = placement_faults(problem, Placement(addresses))
    assert re.search(fault, found)


def test_of_many_faults_the_first_are_said_and_the_others_counted() -> None:
    problem = PlacementProblem("p", [Residence(f"r{i}", 1, 0, 1) for i in range(50)])
    found = placement_faults(problem, Placement([0] * 50))
    assert len(found) == 11
    assert found[-1] == "there are 39 more overlaps"


@settings(max_examples=100, deadline=None)
@given(placed())
def test_the_load_is_that_of_the_busiest_moment(
    case: tuple[PlacementProblem, Placement],
) -> None:
    problem, _ = case
    most = max(
        (
            sum(
                size
                for r, size in zip(problem.residences, problem.sizes, strict=True)
                if r.start <= moment < r.end
            )
            for moment in range(-2, 20)
        ),
        default=0,
    )
    assert problem.load == most
    assert load(problem, most, Computed(), UNLIMITED.begin()) is None
    said = load(problem, most + 1, Computed(), UNLIMITED.begin())
    assert said == f"at most {most} bytes are taken at a time, not {most + 1}"
