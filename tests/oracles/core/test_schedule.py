"""What a schedule decides, against the definition by which it was written down."""

import pytest

from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Move
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from support.problems.schedules import cases


def first_after_claim(schedule: Schedule, transfer: Transfer) -> int:
    for operation, (start, end) in enumerate(zip(schedule.starts, schedule.ends, strict=True)):
        if start > transfer.start or (start == transfer.start and end > start):
            return operation
    return len(schedule.starts) - 1


def first_after_release(problem: Problem, schedule: Schedule, transfer: Transfer) -> int:
    gap = problem.trace.gaps[transfer.gap]
    released = schedule.release(problem.trace, transfer)
    inside = range(gap.before + 1, gap.after)
    return next((o for o in inside if schedule.starts[o] >= released), gap.after - 1)


@pytest.mark.slow
def test_a_plan_names_the_operations_that_find_the_memory_taken_or_released() -> None:
    plans = moves = 0
    for problem, schedule in cases(2000, seed=7):
        gaps = range(len(problem.trace.gaps))
        if any(transfer.gap not in gaps for transfer in schedule.transfers):
            continue
        # Also in schedules whose operations overlap.
        for transfer in schedule.transfers:
            expected = first_after_claim(schedule, transfer)
            assert schedule.first_operation_after_claim(transfer) == expected
        if list(schedule.starts) == sorted(schedule.starts):
            plans += 1
            moves += len(schedule.transfers)
            assert schedule.plan(problem.trace).moves == tuple(
                Move(
                    t.kind,
                    t.gap,
                    first_after_claim(schedule, t)
                    if t.kind is Kind.PREFETCH
                    else first_after_release(problem, schedule, t),
                )
                for t in schedule.transfers
            )
    assert plans > 1000
    assert moves > 4000
