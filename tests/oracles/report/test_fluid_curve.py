from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from offcert.certification.methods import solve
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, TransferPiece
from offcert.report.gantt import save_gantt
from offcert.report.memory_curve import fluid_memory_curve
from support.problems.random_instances import random_problem
from support.seeds import by_seeds


def test_the_curve_of_a_hand_computed_schedule() -> None:
    operations = [Operation("f", 1), Operation("turn", 1, 5), Operation("b", 1)]
    network = Trace(operations, [Tensor("x", 10, (0, 2))])
    problem = Problem("p", network, Platform(10, Fraction(1)), Transfers.FRACTIONAL)
    pieces = [
        TransferPiece(Kind.OFFLOAD, 0, Fraction(1), Fraction(6), Fraction(5)),
        TransferPiece(Kind.PREFETCH, 0, Fraction(7), Fraction(12), Fraction(5)),
    ]
    schedule = FluidSchedule((0, 6, 12), (1, 7, 13), pieces)
    assert check_fluid(problem, schedule) == []
    corners = [(0, 10), (1, 10), (1, 10), (6, 5), (6, 10), (7, 10), (7, 5), (12, 10), (12, 10)]
    assert fluid_memory_curve(problem, schedule) == [*corners, (13, 10), (13, 0)]


@pytest.mark.slow
@by_seeds(0, 60, 30)
def test_the_curve_and_the_checker_agree_on_the_fullest_moment(seeds: range) -> None:
    """The curve's peak fits, and one byte less than it does not."""
    seen = 0
    for seed in seeds:
        kind = (Transfers.INTERRUPTIBLE, Transfers.FRACTIONAL)[seed % 2]
        problem = replace(random_problem(seed + 50, 4), transfers=kind)
        schedule = solve(problem, "fluid-exact").result.schedule
        assert isinstance(schedule, FluidSchedule)
        curve = fluid_memory_curve(problem, schedule)
        assert [time for time, _ in curve] == sorted(time for time, _ in curve)
        peak = max(size for _, size in curve)
        assert peak <= problem.platform.memory
        assert curve[-1] == (schedule.makespan, 0)
        # An operation of no duration does not show, but the checker sees it.
        if 0 not in problem.trace.durations:
            whole = -(-peak // 1)
            assert check_fluid(problem.with_memory(whole), schedule) == []
            assert check_fluid(problem.with_memory(whole - 1), schedule) != []
            seen += 1
    assert seen >= 9


def held(problem: Problem, schedule: FluidSchedule, time: Fraction) -> Fraction:
    """Return the bytes on the device at a time between two events, from the definition."""

    def moved(kind: Kind, gaps: set[int]) -> Fraction:
        return sum(
            (
                min(max((time - piece.start) / (piece.end - piece.start), Fraction(0)), Fraction(1))
                * piece.size
                for piece in schedule.pieces
                if piece.kind is kind and piece.gap in gaps
            ),
            Fraction(0),
        )

    trace, total = problem.trace, Fraction(0)
    for operation, start, end in zip(trace.operations, schedule.starts, schedule.ends, strict=True):
        total += operation.workspace if start < time < end else 0
    for index, tensor in enumerate(trace.tensors):
        begin = schedule.starts[tensor.uses[0]] if tensor.uses[0] >= 0 else 0
        if not begin < time < schedule.ends[tensor.uses[-1]]:
            continue
        total += tensor.size
        gaps = {number for number, gap in enumerate(trace.gaps) if gap.tensor == index}
        for number in gaps:
            gap = trace.gaps[number]
            opened = schedule.ends[gap.before] if gap.before >= 0 else 0
            if opened < time < schedule.starts[gap.after]:
                evicted = sum(
                    piece.size
                    for piece in schedule.pieces
                    if piece.kind is Kind.PREFETCH and piece.gap == number
                )
                off = min(moved(Kind.OFFLOAD, gaps), Fraction(evicted))
                total -= off - moved(Kind.PREFETCH, {number})
    return total


@pytest.mark.slow
@by_seeds(0, 40, 20)
def test_the_curve_is_what_the_definition_says_everywhere(seeds: range) -> None:
    bent = 0
    for seed in seeds:
        kind = (Transfers.INTERRUPTIBLE, Transfers.FRACTIONAL)[seed % 2]
        problem = replace(random_problem(seed + 150, 4), transfers=kind)
        schedule = solve(problem, "fluid-exact").result.schedule
        assert isinstance(schedule, FluidSchedule)
        curve = fluid_memory_curve(problem, schedule)
        for (start, low), (end, high) in pairwise(curve):
            for part in (Fraction(1, 7), Fraction(1, 2)):
                time = start + (end - start) * part
                if end > start:
                    assert low + (high - low) * part == held(problem, schedule, time)
                    bent += low != high
    assert bent >= 88


def test_a_corner_is_where_more_is_copied_than_leaves() -> None:
    """Twelve bytes are copied, four of them leave in the first gap and the rest in the second."""
    operations = [Operation(name, 6) for name in "abcde"]
    network = Trace(operations, [Tensor("x", 12, (0, 2, 4))])
    problem = Problem("p", network, Platform(12, Fraction(2)), Transfers.FRACTIONAL)
    pieces = [
        TransferPiece(Kind.OFFLOAD, 0, Fraction(6), Fraction(12), Fraction(12)),
        TransferPiece(Kind.PREFETCH, 0, Fraction(12), Fraction(14), Fraction(4)),
        TransferPiece(Kind.PREFETCH, 1, Fraction(22), Fraction(26), Fraction(8)),
    ]
    schedule = FluidSchedule((0, 6, 14, 20, 26), (6, 12, 20, 26, 32), pieces)
    curve = fluid_memory_curve(problem, schedule)
    assert curve == [
        *((0, 12), (6, 12)),
        *((6, 12), (8, 8), (12, 8)),
        *((12, 8), (14, 12)),
        *((14, 12), (20, 12)),
        *((20, 4), (22, 4), (26, 12)),
        *((26, 12), (32, 12)),
        (32, 0),
    ]


def test_a_schedule_in_pieces_is_drawn(tmp_path: Path) -> None:
    problem = replace(random_problem(5), transfers=Transfers.INTERRUPTIBLE)
    certificate = solve(problem, "fluid-exact")
    assert isinstance(certificate.result.schedule, FluidSchedule)
    save_gantt(certificate, tmp_path / "plan.svg")
    assert "</svg>" in (tmp_path / "plan.svg").read_text()
