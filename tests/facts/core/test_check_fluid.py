"""The checker of pieces must see every violation; each test breaks a valid schedule in one way."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, TransferPiece
from offcert.questions.schedule.simulate import simulate
from support.problems.random_instances import random_problem
from support.seeds import by_seeds

OUT, BACK = Kind.OFFLOAD, Kind.PREFETCH
Change = Callable[[FluidSchedule], FluidSchedule]


def piece(kind: Kind, gap: int, start: float, end: float, size: float) -> TransferPiece:
    return TransferPiece(kind, gap, Fraction(start), Fraction(end), Fraction(size))


def problem_and_schedule(
    transfers: Transfers = Transfers.INTERRUPTIBLE, link: Link = Link.SIMPLEX
) -> tuple[Problem, FluidSchedule]:
    """o2 needs 7 of a and b absent; b leaves while o1 reads it, and returns partly during o2."""
    operations = [Operation(f"o{i}", 10, 9 if i == 2 else 0) for i in range(5)]
    tensors = [Tensor("a", 6, (0, 4)), Tensor("b", 4, (0, 1, 3))]
    network = Trace(operations, tensors)
    problem = Problem("p", network, Platform(12, Fraction(1), link), transfers)
    pieces = [
        piece(OUT, 0, 10, 12.5, 2.5),
        piece(OUT, 1, 12.5, 16.5, 4),
        piece(OUT, 0, 16.5, 20, 3.5),
        piece(BACK, 1, 27, 31, 4),
        piece(BACK, 0, 31, 37, 6),
    ]
    return problem, FluidSchedule((0, 10, 20, 31, 41), (10, 20, 30, 41, 51), pieces)


def shift_operation(index: int, by: int) -> Change:
    def change(schedule: FluidSchedule) -> FluidSchedule:
        starts, ends = list(schedule.starts), list(schedule.ends)
        starts[index] += by
        ends[index] += by
        return FluidSchedule(starts, ends, schedule.pieces)

    return change


def edit(index: int, **changes: object) -> Change:
    """Change the piece at a place in the order of starts."""

    def change(schedule: FluidSchedule) -> FluidSchedule:
        pieces = list(schedule.pieces)
        exact = {k: Fraction(v) if isinstance(v, float) else v for k, v in changes.items()}
        pieces[index] = replace(pieces[index], **exact)  # type: ignore[arg-type]
        return FluidSchedule(schedule.starts, schedule.ends, pieces)

    return change


def without(*indices: int) -> Change:
    return lambda s: FluidSchedule(
        s.starts, s.ends, [p for i, p in enumerate(s.pieces) if i not in indices]
    )


def more(*pieces: TransferPiece) -> Change:
    return lambda s: FluidSchedule(s.starts, s.ends, [*s.pieces, *pieces])


def test_the_schedule_that_the_cases_break_is_valid() -> None:
    for transfers in (Transfers.INTERRUPTIBLE, Transfers.FRACTIONAL):
        problem, schedule = problem_and_schedule(transfers)
        assert check_fluid(problem, schedule) == []
        assert schedule.makespan == 51
        assert schedule.evicted == (0, 1)
        assert schedule.offloaded_size == 10


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (shift_operation(0, -1), "operation 0 .* starts at -1, before the schedule begins"),
        (shift_operation(1, -1), "operation 1 .* starts at 9, before operation 0 ends at 10"),
        (lambda s: FluidSchedule(s.starts, (*s.ends[:-1], 50), s.pieces), "lasts 9"),
        (lambda s: FluidSchedule(s.starts[:-1], s.ends[:-1], s.pieces), "4 operation starts for 5"),
        (lambda s: FluidSchedule((0.0, *s.starts[1:]), s.ends, s.pieces), "no integer"),
        (edit(0, size=2), "piece 0 has numbers that are no rationals"),
        (edit(0, gap=7), "piece 0 names gap 7, which does not exist"),
        (edit(0, gap=True), "piece 0 names gap True"),
        (edit(0, kind="offload!"), "unknown kind"),
        (edit(0, end=10.0), "piece 0 moves 5/2 from 10 to 10"),
        (edit(0, size=-2.5), "piece 0 moves -5/2"),
        (edit(3, size=4.25, start=27.0), "moves 17/4 where the link can move 4"),
        (edit(1, start=12.25), "begins while the offload of a .* uses the link until 25/2"),
        (edit(0, start=9.5), "begins before its tensor is written at 10"),
        (without(4), "the offload of a .* does not name its tensor's first evicted gap"),
        (without(1), "4 of b have come back at 31, when 0 have left"),
        (without(2), "5/2 of the 6 of a are offloaded"),
        (edit(4, size=5.0), "5 of the 6 of a are prefetched"),
        (more(piece(BACK, 0, 37, 38, 0.5)), "13/2 of the 6 of a are prefetched"),
        (edit(4, start=35.5, end=41.5), "ends after its tensor is needed at 41"),
        (shift_operation(3, -1), "ends after its tensor is needed at 30|starts at 30"),
        (edit(3, start=19.0, end=23.0), "begins before its gap at 20"),
        (
            edit(3, start=26.75, end=30.75),
            "memory during operation 2 .* at 30 holds 49/4, 1/4 over",
        ),
        (edit(2, start=19.75, end=23.25), "memory during operation 2 .* at 20 holds 49/4, 1/4"),
        (edit(2, start=51.0, end=54.5), "ends after its tensor is gone at 51"),
    ],
)
def test_a_broken_schedule_is_refused(change: Change, fault: str) -> None:
    problem, schedule = problem_and_schedule()
    faults = check_fluid(problem, change(schedule))
    assert any(re.search(fault, text) for text in faults), faults


def test_atomic_transfers_have_no_pieces() -> None:
    problem, schedule = problem_and_schedule(Transfers.ATOMIC)
    assert check_fluid(problem, schedule) == [
        "the schedule has pieces, but the problem has atomic transfers"
    ]


def test_memory_is_checked_to_the_byte() -> None:
    problem, schedule = problem_and_schedule()
    assert check_fluid(problem.with_memory(11), schedule) == [
        "memory during operation 2 (o2) at 30 holds 12, 1 over the limit of 11"
    ]


def test_memory_is_checked_at_the_ends_of_pieces() -> None:
    """x is half back for a while before y leaves: too early, though both ends of o0 are right."""
    operations = [Operation("o0", 10, 4), Operation("o1", 1)]
    network = Trace(operations, [Tensor("x", 4, (-1, 1)), Tensor("y", 4, (-1, 1))])
    problem = Problem("p", network, Platform(8, Fraction(1)), Transfers.FRACTIONAL)
    pieces = [piece(OUT, 0, 0, 4, 4), piece(BACK, 0, 5, 7, 2), piece(OUT, 1, 7, 9, 2)]
    pieces += [piece(BACK, 0, 14, 16, 2), piece(BACK, 1, 16, 18, 2)]
    schedule = FluidSchedule((4, 18), (14, 19), pieces)
    assert check_fluid(problem, schedule) == [
        "memory during operation 0 (o0) at 7 holds 10, 2 over the limit of 8"
    ]
    swapped = [pieces[0], piece(OUT, 1, 5, 7, 2), piece(BACK, 0, 7, 9, 2), *pieces[3:]]
    assert check_fluid(problem, FluidSchedule((4, 18), (14, 19), swapped)) == []


def test_what_has_left_is_not_released_while_the_operation_that_opens_its_gap_runs() -> None:
    """x has left before r, which reads it, begins; only after r does that free any memory."""
    operations = [Operation(name, 5, 2 if name == "r" else 0) for name in ("w", "p", "r", "s", "e")]
    network = Trace(operations, [Tensor("x", 4, (0, 2, 4)), Tensor("z", 4, (3,))])
    pieces = [piece(OUT, 1, 5, 9, 4), piece(BACK, 1, 20, 24, 4)]
    schedule = FluidSchedule((0, 5, 10, 15, 24), (5, 10, 15, 20, 29), pieces)
    problem = Problem("p", network, Platform(6, Fraction(1)), Transfers.INTERRUPTIBLE)
    assert check_fluid(problem, schedule) == []
    assert check_fluid(problem.with_memory(5), schedule) == [
        "memory during operation 2 (r) at 15 holds 6, 1 over the limit of 5"
    ]
    other = edit(0, gap=0)(schedule)
    assert check_fluid(problem, other) == [
        "the offload of x (gap 0) from 5 to 9 does not name its tensor's first evicted gap"
    ]


def test_idle_time_has_its_own_memory() -> None:
    """Resident tensors fill the device before the first operation; nothing there hides it."""
    operations = [Operation("o0", 1), Operation("o1", 1), Operation("o2", 1)]
    network = Trace(operations, [Tensor("a", 4, (-1, 2)), Tensor("b", 3, (-1, 0))])
    problem = Problem("p", network, Platform(6, Fraction(1)), Transfers.FRACTIONAL)
    pieces = [piece(OUT, 0, 0, 1, 1), piece(BACK, 0, 3, 4, 1)]
    schedule = FluidSchedule((1, 2, 4), (2, 3, 5), pieces)
    assert check_fluid(problem.with_memory(7), schedule) == []
    assert check_fluid(problem, schedule) == [
        "memory before operation 0 at 0 holds 7, 1 over the limit of 6"
    ]


def test_a_copy_stays_valid_and_a_part_of_it_may_leave_again() -> None:
    """Two gaps of one tensor: 4 bytes are copied, 2 are off in the first gap, 3 in the second."""
    operations = [Operation(f"o{i}", 4) for i in range(5)]
    network = Trace(operations, [Tensor("a", 6, (0, 2, 4)), Tensor("c", 4, (3,), evictable=False)])
    problem = Problem("p", network, Platform(7, Fraction(1)), Transfers.FRACTIONAL)
    pieces = [
        piece(OUT, 0, 4, 6, 2),
        piece(BACK, 0, 6, 8, 2),
        piece(OUT, 0, 8, 10, 2),
        piece(BACK, 1, 16, 19, 3),
    ]
    starts = (0, 4, 8, 12, 19)
    schedule = FluidSchedule(starts, [start + 4 for start in starts], pieces)
    assert check_fluid(problem, schedule) == []
    # 4 bytes have copies, but only the 3 that return had left.
    assert check_fluid(problem.with_memory(6), schedule) == [
        "memory during operation 3 (o3) at 16 holds 7, 1 over the limit of 6"
    ]
    greedy = more(piece(OUT, 0, 10, 13, 3))(schedule)
    assert check_fluid(problem, greedy) == ["7 of the 6 of a are offloaded"]
    too_much = edit(3, start=15.0, end=20.0, size=5.0)(schedule)
    assert any("when 4 have left" in text for text in check_fluid(problem, too_much))
    whole = replace(problem, transfers=Transfers.INTERRUPTIBLE)
    assert any("4 of the 6 of a are offloaded" in text for text in check_fluid(whole, schedule))


def test_a_duplex_link_serves_one_piece_in_each_direction() -> None:
    problem, schedule = problem_and_schedule(link=Link.DUPLEX)
    assert check_fluid(problem, schedule) == []
    both = edit(4, start=30.0, end=36.0)(schedule)
    assert any("uses the link" in text for text in check_fluid(problem, both))
    operations = [Operation("o0", 1), Operation("o1", 4), Operation("o2", 1)]
    network = Trace(operations, [Tensor("a", 2, (0, 2)), Tensor("b", 2, (0, 2))])
    pieces = [
        piece(OUT, 0, 1, 3, 2),
        piece(BACK, 0, 3, 5, 2),
        piece(OUT, 1, 3, 5, 2),
        piece(BACK, 1, 5, 7, 2),
    ]
    times = FluidSchedule((0, 1, 7), (1, 5, 8), pieces)
    platform = Platform(9, Fraction(1), Link.DUPLEX)
    roomy = Problem("p", network, platform, Transfers.INTERRUPTIBLE)
    assert check_fluid(roomy, times) == []
    simplex = replace(roomy, platform=Platform(9, Fraction(1)))
    assert any("uses the link" in text for text in check_fluid(simplex, times))


@by_seeds(0, 120, 30)
def test_every_atomic_schedule_is_one_of_pieces(seeds: range) -> None:
    """Even where a transfer lasts longer than its bytes need, because ticks are whole."""
    moved = 0
    for seed in seeds:
        problem = random_problem(seed + 300)
        problem = problem.with_memory(problem.trace.least_memory)
        schedule = simulate(problem, sequential(problem))
        assert check(problem, schedule) == []
        relaxed = replace(problem, transfers=Transfers.INTERRUPTIBLE)
        assert check_fluid(relaxed, in_pieces(problem, schedule)) == []
        moved += len(schedule.transfers)
    assert moved >= 62


def in_pieces(problem: Problem, schedule: Schedule) -> FluidSchedule:
    pieces = [
        piece(t.kind, t.gap, t.start, t.end, problem.trace.gap_size(t.gap))
        for t in schedule.transfers
    ]
    return FluidSchedule(schedule.starts, schedule.ends, pieces)
