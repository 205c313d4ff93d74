"""Copies on the host: when they are needed, by ticks and in the order of operations."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.placement.problem import Occupant, PlacementProblem
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import (
    HostResidences,
    host_placement_problem,
    host_residences,
    host_residences_in_order,
)
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.questions.schedule.simulate import simulate
from support.problems.schedules import cases

OUT, BACK = Kind.OFFLOAD, Kind.PREFETCH


def rows(found: HostResidences) -> list[tuple[str, int, int, int]]:
    return [(stay.name, stay.size, stay.start, stay.end) for _, stay in found]


def load(found: HostResidences) -> int:
    return PlacementProblem("", [stay for _, stay in found]).load


def valid(count: int, seed: int) -> Iterator[tuple[Problem, Schedule]]:
    for problem, schedule in cases(count, seed, 12):
        if not check(problem.with_memory(problem.trace.peak_memory), schedule):
            yield problem, schedule


def crossing() -> tuple[Problem, Plan]:
    """B leaves after A has returned, but both while the same operation runs."""
    operations = [Operation(name, 10 if name == "o2" else 3) for name in ("o0", "o1", "o2", "o3")]
    tensors = [Tensor("A", 3, (-1, 3)), Tensor("B", 3, (1, 3)), Tensor("none", 0, (0, 3))]
    problem = Problem("crossing", Trace(operations, tensors), Platform(6, Fraction(1)))
    return problem, Plan([Move(OUT, 0, 1), Move(BACK, 0, 3), Move(OUT, 1, 3), Move(BACK, 1, 3)])


def test_one_copy_a_tensor_from_its_offload_to_its_last_prefetch() -> None:
    operations = [Operation(f"o{index}", 10) for index in range(6)]
    tensors = [Tensor("a", 4, (0, 2, 5)), Tensor("b", 3, (1, 4)), Tensor("stays", 9, (0, 5))]
    problem = Problem("p", Trace(operations, tensors), Platform(16, Fraction(1)))
    plan = Plan([Move(OUT, 0, 2), Move(BACK, 0, 2), Move(OUT, 2, 3), Move(BACK, 2, 4)])
    again = Plan([*plan.moves, Move(BACK, 1, 5)])
    for each, ticks, order in ((plan, 18, 3), (again, 44, 6)):
        schedule = simulate(problem, each)
        found = host_residences(problem.trace, schedule)
        assert found[0][0] == Occupant("tensor", 0)
        assert rows(found)[0] == ("a", 4, 10, ticks)
        assert rows(found)[1] == ("b", 3, 20, 33)
        in_order = [("a", 4, 2, order), ("b", 3, 3, 5)]
        assert rows(host_residences_in_order(problem.trace, each)) == in_order
    assert host_placement_problem(problem, schedule).sizes == (64, 64)
    assert host_placement_problem(problem, schedule, 1).load == 7


def test_what_does_not_meet_in_ticks_may_meet_in_the_order_of_operations() -> None:
    problem, plan = crossing()
    schedule = simulate(problem, plan)
    assert not check(problem, schedule)
    (_, a), (_, b) = host_residences(problem.trace, schedule)
    assert not a.meets(b)
    (_, a), (_, b) = host_residences_in_order(problem.trace, schedule.plan(problem.trace))
    assert a.meets(b)


def needed(problem: Problem, schedule: Schedule, moment: int) -> set[int]:
    """Return the tensors of which some transfer has begun, and some has not ended."""
    of = [(problem.trace.gaps[move.gap].tensor, move) for move in schedule.transfers]
    begun = {tensor for tensor, move in of if move.start <= moment}
    return begun & {tensor for tensor, move in of if move.end > moment}


def test_loads_are_what_is_needed_at_any_time() -> None:
    found = shared = 0
    for problem, schedule in valid(400, 3):
        sizes = [tensor.size for tensor in problem.trace.tensors]
        moments = {move.start for move in schedule.transfers}
        most = max(
            (sum(sizes[t] for t in needed(problem, schedule, each)) for each in moments), default=0
        )
        copies = host_residences(problem.trace, schedule)
        assert load(copies) == most
        found += bool(moments)
        shared += most < sum(stay.size for _, stay in copies)
    assert found > 60
    assert shared > 10


def test_residences_in_order_meet_unless_one_is_read_last_before_the_other_is_written() -> None:
    apart = 0
    for problem, schedule in valid(400, 5):
        trace = problem.trace
        plan = schedule.plan(trace)
        # What a runtime does: before each operation, first all that leaves, then all that returns.
        moves = enumerate(sorted(plan.moves, key=lambda move: (move.before, move.kind is BACK)))
        times: dict[int, list[int]] = {}
        for time, move in moves:
            times.setdefault(trace.gaps[move.gap].tensor, []).append(time)
        residences = host_residences_in_order(trace, plan)
        for (first, one), (second, two) in combinations(residences, 2):
            sooner = times[first.index][-1] < times[second.index][0]
            later = times[second.index][-1] < times[first.index][0]
            assert one.meets(two) is not (sooner or later)
            apart += sooner or later
    assert apart > 30


def test_on_a_simplex_link_ticks_say_who_uses_it_first() -> None:
    apart = 0
    for problem, schedule in valid(400, 6):
        if problem.platform.link is not Link.SIMPLEX:
            continue
        trace = problem.trace
        used: dict[int, list[int]] = {}
        for place, move in enumerate(schedule.transfers):
            used.setdefault(trace.gaps[move.gap].tensor, []).append(place)
        for (first, one), (second, two) in combinations(host_residences(trace, schedule), 2):
            if one.end <= two.start:
                assert max(used[first.index]) < min(used[second.index])
                apart += 1
    assert apart > 10


def test_what_moves_in_pieces_has_no_copies_to_be_placed() -> None:
    problem, _ = crossing()
    with pytest.raises(InputError, match="in pieces has no copies to be placed on the host"):
        host_placement_problem(problem, FluidSchedule([0], [1], []))
