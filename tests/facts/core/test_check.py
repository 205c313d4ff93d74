"""The checker must see every kind of violation; each test breaks one valid schedule in one way."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.simulate import simulate

OUT, BACK = Kind.OFFLOAD, Kind.PREFETCH


def problem_and_schedule(link: Link = Link.SIMPLEX) -> tuple[Problem, Schedule]:
    operations = [Operation(f"o{i}", 10, 9 if i == 2 else 0) for i in range(5)]
    tensors = [Tensor("a", 6, (0, 4)), Tensor("b", 4, (0, 1, 3))]
    problem = Problem("p", Trace(operations, tensors), Platform(12, Fraction(1), link))
    plan = Plan([Move(OUT, 0, 2), Move(OUT, 1, 2), Move(BACK, 1, 3), Move(BACK, 0, 4)])
    return problem, simulate(problem, plan)


def shift_operation(index: int, by: int) -> Callable[[Schedule], Schedule]:
    def change(schedule: Schedule) -> Schedule:
        starts, ends = list(schedule.starts), list(schedule.ends)
        starts[index] += by
        ends[index] += by
        return Schedule(starts, ends, schedule.transfers)

    return change


def edit_transfer(
    kind: Kind, gap: int, edit: Callable[[Transfer], Transfer | None]
) -> Callable[[Schedule], Schedule]:
    def change(schedule: Schedule) -> Schedule:
        edited = [edit(t) if (t.kind, t.gap) == (kind, gap) else t for t in schedule.transfers]
        return Schedule(schedule.starts, schedule.ends, [t for t in edited if t is not None])

    return change


def shift(by: int) -> Callable[[Transfer], Transfer]:
    return lambda t: replace(t, start=t.start + by, end=t.end + by)


def test_the_schedule_that_the_cases_break_is_valid() -> None:
    problem, schedule = problem_and_schedule()
    # a leaves while o1 runs and b, o1's own input, right after it; b is back just before o3.
    assert schedule.starts == (0, 10, 20, 34, 44)
    assert [(t.kind, t.gap, t.start) for t in schedule.transfers] == [
        *((OUT, 0, 10), (OUT, 1, 16)),
        *((BACK, 1, 30), (BACK, 0, 34)),
    ]
    assert check(problem, schedule) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (shift_operation(0, -1), "operation 0 .* starts at -1, before the schedule begins"),
        (shift_operation(1, -1), "operation 1 .* starts at 9, before operation 0 ends at 10"),
        (lambda s: Schedule(s.starts, (*s.ends[:-1], s.ends[-1] - 1), s.transfers), "lasts 9"),
        (lambda s: Schedule(s.starts[:-1], s.ends[:-1], s.transfers), "4 operation starts for 5"),
        (lambda s: Schedule((0.0, *s.starts[1:]), s.ends, s.transfers), "no integer"),
        (edit_transfer(OUT, 0, shift(-1)), "before its tensor is written at 10"),
        (edit_transfer(OUT, 1, shift(-1)), "uses the link until 16"),
        (edit_transfer(OUT, 0, lambda t: replace(t, end=t.end - 1)), "lasts 5 ticks instead of 6"),
        (edit_transfer(OUT, 0, lambda t: None), "has no offload"),
        (edit_transfer(BACK, 0, lambda t: None), "does not name its tensor's first evicted gap"),
        (edit_transfer(BACK, 1, shift(1)), "after its tensor is needed"),
        (edit_transfer(BACK, 1, shift(-15)), "before its tensor has left at 20"),
        (edit_transfer(BACK, 1, shift(-5)), "memory at the prefetch of b"),
        (edit_transfer(BACK, 0, lambda t: replace(t, gap=7)), "gap 7, which does not exist"),
        (shift_operation(2, -1), "memory at operation 2 .* holds 13|before operation 1 ends"),
    ],
)
def test_a_broken_schedule_is_refused(change: Callable[[Schedule], Schedule], fault: str) -> None:
    import re

    problem, schedule = problem_and_schedule()
    faults = check(problem, change(schedule))
    assert any(re.search(fault, text) for text in faults), faults


def test_memory_is_checked_to_the_byte() -> None:
    problem, schedule = problem_and_schedule()
    tight = problem.with_memory(10)
    assert check(tight, schedule) == []
    assert check(problem.with_memory(9), schedule) != []


@pytest.mark.parametrize("link", Link)
def test_durations_are_checked_against_the_rate_of_their_direction(link: Link) -> None:
    problem, schedule = problem_and_schedule(link)
    for back, faulty in ((Fraction(2), "prefetch"), (Fraction(1, 2), "prefetch")):
        platform = replace(problem.platform, prefetch_bandwidth=back)
        faults = check(replace(problem, platform=platform), schedule)
        assert faults
        assert all(fault.startswith(f"the {faulty} of") for fault in faults)
    platform = replace(problem.platform, bandwidth=Fraction(2), prefetch_bandwidth=Fraction(1))
    faults = check(replace(problem, platform=platform), schedule)
    assert faults
    assert all(fault.startswith("the offload of") for fault in faults)


def test_a_duplex_link_still_serves_one_transfer_in_each_direction() -> None:
    problem, schedule = problem_and_schedule(Link.DUPLEX)
    assert check(problem, schedule) == []
    broken = edit_transfer(OUT, 1, shift(-1))(schedule)
    assert any("uses the link" in fault for fault in check(problem, broken))


def test_an_operation_of_no_duration_is_over_before_a_prefetch_at_the_same_time() -> None:
    operations = [Operation("w", 1), Operation("gap", 0, 8), Operation("r", 1)]
    problem = Problem("p", Trace(operations, [Tensor("a", 5, (0, 2))]), Platform(8, Fraction(5)))
    transfers = [Transfer(OUT, 0, 1, 2), Transfer(BACK, 0, 2, 3)]
    assert check(problem, Schedule((0, 2, 3), (1, 2, 4), transfers)) == []
    longer = [Operation("w", 1), Operation("gap", 1, 8), Operation("r", 1)]
    problem = Problem("p", Trace(longer, [Tensor("a", 5, (0, 2))]), Platform(8, Fraction(5)))
    assert check(problem, Schedule((0, 2, 3), (1, 3, 4), transfers)) != []
