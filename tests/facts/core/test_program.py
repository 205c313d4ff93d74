"""What checkpointing carries out, segment by segment."""

from __future__ import annotations

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.program import Program, Segment, program_from_json
from offcert.verification.execution import execution_faults

CHAIN = CheckpointChain([1] * 5, [2] * 5, [3] * 6, [7] * 5)
NETWORK = CHAIN.network()
F, B = range(5), {stage: 9 - stage for stage in range(5)}


def order(*segments: Segment) -> list[int]:
    strategy = Program(segments).strategy(NETWORK)
    assert execution_faults(NETWORK, strategy.expand(NETWORK)) == []
    return list(strategy.order)


def test_a_segment_runs_again_before_its_first_backward_computation() -> None:
    assert order(Segment(1, 3)) == [*F, B[4], 1, 2, 3, B[3], B[2], B[1], B[0]]


def test_what_is_kept_does_not_run_again() -> None:
    assert order(Segment(1, 3, kept=(2,))) == [*F, B[4], 1, 3, B[3], B[2], B[1], B[0]]


def test_segments_run_again_one_after_the_other() -> None:
    found = order(Segment(0, 1), Segment(2, 3))
    assert found == [*F, B[4], 2, 3, B[3], B[2], 0, 1, B[1], B[0]]


def test_what_is_nested_runs_again_twice() -> None:
    # But for the last of them: the outer segment stops where that one has what it begins with.
    found = order(Segment(0, 3, inner=(Segment(0, 1), Segment(2, 3))))
    assert found == [*F, B[4], 0, 1, 2, 3, B[3], B[2], 0, 1, B[1], B[0]]


def test_what_comes_before_something_kept_runs_again() -> None:
    # Even if nothing else needs it: checkpointing stops when the last result is there.
    assert order(Segment(1, 3, kept=(3,))) == [*F, B[4], 1, 2, B[3], B[2], B[1], B[0]]


def test_memory_of_a_checkpointed_chain() -> None:
    program = Program([Segment(0, 3)])
    trace = program.strategy(NETWORK).expand(NETWORK).trace
    # At the last backward computation before the segment: a0, a4, what stage 4 keeps, gradients.
    assert trace.demand[5] == 3 + 3 + 7 + 3 + 3


def test_documents() -> None:
    program = Program([Segment(0, 3, (1,), (Segment(2, 3),))])
    assert program_from_json(program.to_json(), "program") == program


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([Segment(1, 2), Segment(2, 3)], r"segments\[1\].first must be at least 3, not 2"),
        ([Segment(2, 1)], r"segments\[0\].last must not be 1"),
        ([Segment(1, 2, kept=(3,))], r"segments\[0\].kept names computation 3"),
        ([Segment(1, 2, inner=(Segment(1, 3),))], r"segments\[0\].inner\[0\].last must not be 3"),
    ],
)
def test_what_is_no_program(segments: list[Segment], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Program(segments)


@pytest.mark.parametrize("last", [5, 12])
def test_backward_computations_are_in_no_segment(last: int) -> None:
    with pytest.raises(InputError, match="a segment"):
        Program([Segment(3, last)]).strategy(NETWORK)
