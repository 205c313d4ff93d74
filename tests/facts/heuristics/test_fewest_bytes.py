"""Plans of the same time that move less: what is left out, and what has to stay."""

from fractions import Fraction

import pytest

from offcert.certification.ladder import certify
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.models.least_cover import least_cover_gaps
from offcert.heuristics.orders.insertion import fewest_bytes, moved, without
from offcert.instances.library import Library
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify


def kept_over_a_peak(sizes: list[int], lacking: int, memory: int = 20) -> Problem:
    """A tensor an operation, all of them kept over a long one that lacks some bytes."""
    count = len(sizes)
    pause = Operation("pause", 100)
    long = Operation("peak", 100, workspace=memory + lacking - sum(sizes))
    around = [Operation(f"f{each}", 100) for each in range(count)]
    back = [Operation(f"b{each}", 100) for each in reversed(range(count))]
    tensors = [
        Tensor(f"x{each}", size, (each, 2 * count + 2 - each)) for each, size in enumerate(sizes)
    ]
    trace = Trace([*around, pause, long, pause, *back], tensors)
    return Problem("peak", trace, Platform(memory, Fraction(1)))


def everything_moves(problem: Problem) -> Plan:
    """All leave in the order of the forward pass, and return in that of the backward pass."""
    middle, gaps = len(problem.trace) // 2, problem.trace.gaps
    out = [Move(Kind.OFFLOAD, gap, middle) for gap in range(len(gaps))]
    back = [Move(Kind.PREFETCH, gap, gaps[gap].after) for gap in reversed(range(len(gaps)))]
    return Plan([*out, *back])


@pytest.mark.parametrize(
    ("sizes", "lacking", "leaves"),
    [
        ([2, 2, 3], 3, {2}),
        ([2, 2, 4], 4, {2}),  # as many bytes as the other two, in one transfer
        ([5, 3, 2], 5, {0}),
        ([6, 3, 4], 7, {1, 2}),
        ([1] * 14 + [6], 6, {14}),  # too many for all subsets
    ],
)
def test_what_leaves_is_what_is_lacking(sizes: list[int], lacking: int, leaves: set[int]) -> None:
    problem = kept_over_a_peak(sizes, lacking, memory=max(20, sum(sizes)))
    schedule = simulate(problem, everything_moves(problem))
    assert schedule.makespan == problem.trace.compute_time
    found = fewest_bytes(problem, schedule, time_limit=5.0)
    assert set(found.evicted) == leaves
    assert found.makespan == schedule.makespan
    assert check(problem, found) == []
    assert moved(problem.trace, leaves) == (2 * lacking, 2 * len(leaves))


def test_without_time_the_schedule_stays_as_it_is() -> None:
    problem = kept_over_a_peak([2, 2, 3], 3)
    schedule = simulate(problem, everything_moves(problem))
    assert fewest_bytes(problem, schedule, time_limit=0.0) is schedule


def test_certify_returns_the_plan_that_moves_least_and_proves_the_same_time() -> None:
    problem = kept_over_a_peak([7, 7, 7, 5, 5, 5, 5, 5, 3, 3, 11], 18, memory=80)
    certificate = certify(problem, time_limit=2.0, workers=1)
    schedule = certificate.result.schedule
    assert schedule is not None
    assert certificate.result.objective == problem.trace.compute_time
    assert moved(problem.trace, schedule.evicted)[0] == 2 * 18
    assert len(schedule.evicted) == 2
    assert verify(certificate).valid


def test_the_least_cover_is_what_is_lacking_and_tried_first() -> None:
    problem = kept_over_a_peak([7, 7, 7, 5, 5, 5, 5, 5, 3, 3, 11], 18, memory=80)
    cover = least_cover_gaps(problem, 10.0)
    assert cover is not None
    assert moved(problem.trace, cover) == (2 * 18, 2 * 2)
    # Without the largest, the same bytes leave in twice as many transfers.
    others = without(everything_moves(problem), problem.trace, frozenset(range(10)))
    schedule = simulate(problem, others)
    alone = fewest_bytes(problem, schedule, time_limit=5.0)
    helped = fewest_bytes(problem, schedule, time_limit=5.0, cover=cover)
    assert moved(problem.trace, alone.evicted) == (2 * 18, 2 * 4)
    assert sorted(helped.evicted) == sorted(cover)


def test_without_enough_to_move_there_is_no_cover() -> None:
    problem = kept_over_a_peak([2, 3], 6)
    assert least_cover_gaps(problem, 1.0) is None


def test_what_highs_prints_of_its_own_accord_is_nobodys_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    # Here it repairs solutions that lost feasibility in its presolve, and prints a line of each.
    assert least_cover_gaps(Library().load("resnet18-duplex-224-m25_alone"), 20.0) is not None
    assert capfd.readouterr() == ("", "")
