"""Residences: their load is what the checker counts, on random schedules and on hand-made ones."""

from collections.abc import Iterator
from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.questions.placement.problem import Occupant
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import placement_problem, residences
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, Transfer
from offcert.questions.schedule.simulate import simulate
from support.problems.schedules import cases

OUT, BACK = Kind.OFFLOAD, Kind.PREFETCH


def rooms(problem: Problem, schedule: Schedule) -> list[tuple[str, int, int, int]]:
    return [(r.name, r.size, r.start, r.end) for _, r in residences(problem.trace, schedule)]


def need(problem: Problem, schedule: Schedule) -> int:
    """Return the least memory with which the checker accepts a schedule."""
    low, high = -1, problem.trace.peak_memory
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if not check(problem.with_memory(middle), schedule) else (middle, high)
        )
    return high


def valid(count: int, seed: int) -> Iterator[tuple[Problem, Schedule]]:
    for problem, schedule in cases(count, seed, 7):
        if not check(problem.with_memory(problem.trace.peak_memory), schedule):
            yield problem, schedule


@pytest.mark.slow
def test_the_load_is_the_memory_that_the_checker_counts() -> None:
    found = instant = again = 0
    for problem, schedule in valid(800, 7):
        placed = placement_problem(problem, schedule)
        assert placed.load == need(problem, schedule), problem.name
        found += 1
        instant += 0 in problem.trace.durations and bool(schedule.transfers)
        evicted = [problem.trace.gaps[gap].tensor for gap in schedule.evicted]
        again += len(set(evicted)) < len(evicted)
    assert found > 200
    assert instant > 50
    assert again > 10


def test_a_tensor_that_leaves_and_returns_has_two_residences() -> None:
    operations = [Operation(f"o{i}", 10, 9 if i == 2 else 0) for i in range(5)]
    tensors = [Tensor("a", 6, (0, 4)), Tensor("b", 4, (0, 1, 3)), Tensor("none", 0, (0, 4))]
    problem = Problem("p", Trace(operations, tensors), Platform(12, Fraction(1)))
    plan = Plan([Move(OUT, 0, 2), Move(OUT, 1, 2), Move(BACK, 1, 3), Move(BACK, 0, 4)])
    schedule = simulate(problem, plan)
    # a is copied from 10 to 16 and returns from 34 on; b from 16 to 20, and from 30 on.
    assert rooms(problem, schedule) == [
        ("a", 6, 0, 16),
        ("a (back 1)", 6, 34, 54),
        ("b", 4, 0, 20),
        ("b (back 1)", 4, 30, 44),
        ("workspace of o2", 9, 20, 30),
    ]
    occupants = [occupant for occupant, _ in residences(problem.trace, schedule)]
    assert occupants == [*[Occupant("tensor", i) for i in (0, 0, 1, 1)], Occupant("workspace", 2)]
    assert placement_problem(problem, schedule).load == 10
    assert need(problem, schedule) == 10


def test_operations_of_no_duration_have_a_unit_of_the_axis_each() -> None:
    """At tick 5: o0 ends, o1 and o2 run one after the other, a returns, o3 begins."""
    operations = [Operation(f"o{i}", d, 3) for i, d in enumerate((5, 0, 0, 4, 1))]
    tensors = [Tensor("a", 2, (-1, 4)), Tensor("b", 7, (1, 2)), Tensor("c", 1, (1,))]
    problem = Problem(
        "p", Trace(operations, tensors), Platform(99, Fraction(2)), units=Units("ns", "B")
    )
    schedule = Schedule(
        (0, 5, 5, 5, 9), (5, 5, 5, 9, 10), [Transfer(OUT, 0, 0, 1), Transfer(BACK, 0, 5, 6)]
    )
    assert check(problem, schedule) == []
    assert rooms(problem, schedule) == [
        ("a", 2, 0, 1),
        ("a (back 1)", 2, 7, 12),
        ("b", 7, 5, 7),
        ("c", 1, 5, 6),
        ("workspace of o0", 3, 0, 5),
        ("workspace of o1", 3, 5, 6),
        ("workspace of o2", 3, 6, 7),
        ("workspace of o3", 3, 7, 11),
        ("workspace of o4", 3, 11, 12),
    ]
    placed = placement_problem(problem, schedule)
    assert placed.load == need(problem, schedule) == 11
    # The axis is no longer one of nanoseconds.
    assert placed.units == Units("tick", "B")


def test_what_is_released_while_an_instant_operation_waits_makes_room_for_it() -> None:
    """a has left at tick 3, at which z runs: before it, not after."""
    trace = Trace(
        [Operation("f", 3), Operation("z", 0), Operation("g", 1)],
        [Tensor("a", 3, (-1, 2)), Tensor("b", 3, (1, 2))],
    )
    problem = Problem("p", trace, Platform(3, Fraction(1), Link.DUPLEX))
    schedule = Schedule((0, 3, 6), (3, 3, 7), [Transfer(OUT, 0, 0, 3), Transfer(BACK, 0, 3, 6)])
    assert need(problem, schedule) == placement_problem(problem, schedule).load == 6
    assert rooms(problem, schedule) == [("a", 3, 0, 3), ("a (back 1)", 3, 4, 8), ("b", 3, 3, 8)]


def test_leaving_and_returning_at_one_moment_may_still_change_the_address() -> None:
    trace = Trace(
        [Operation("f", 2), Operation("g", 2), Operation("h", 2)], [Tensor("a", 2, (0, 2))]
    )
    problem = Problem("p", trace, Platform(2, Fraction(2), Link.DUPLEX))
    schedule = Schedule((0, 2, 4), (2, 4, 6), [Transfer(OUT, 0, 2, 3), Transfer(BACK, 0, 3, 4)])
    assert rooms(problem, schedule) == [("a", 2, 0, 3), ("a (back 1)", 2, 3, 6)]


def test_a_second_eviction_needs_no_copy() -> None:
    trace = Trace([Operation(f"o{i}", 5) for i in range(5)], [Tensor("a", 2, (0, 2, 4))])
    problem = Problem("p", trace, Platform(2, Fraction(2)))
    moves = [Transfer(OUT, 0, 5, 6), Transfer(BACK, 0, 9, 10), Transfer(BACK, 1, 19, 20)]
    schedule = Schedule((0, 5, 10, 15, 20), (5, 10, 15, 20, 25), moves)
    assert check(problem, schedule) == []
    assert rooms(problem, schedule) == [
        ("a", 2, 0, 6),
        ("a (back 1)", 2, 9, 15),
        ("a (back 2)", 2, 19, 25),
    ]


def test_pieces_have_no_address() -> None:
    trace = Trace([Operation("f", 2)], [Tensor("a", 2, (0,))])
    problem = Problem("p", trace, Platform(2, Fraction(2)), "fractional")
    with pytest.raises(InputError, match=r"moves tensors in pieces cannot be placed: .*fractional"):
        placement_problem(problem, FluidSchedule([0], [2], []))
    # Whole transfers may well be used where pieces are allowed.
    assert placement_problem(problem, Schedule([0], [2], [])).load == 2


def test_alignment_and_capacity_are_handed_on() -> None:
    problem, schedule = next(valid(50, 3))
    placed = placement_problem(problem, schedule, 10**6, 7)
    assert placed.capacity == 10**6
    assert all(size % placed.alignment == 0 for size in placed.sizes)
