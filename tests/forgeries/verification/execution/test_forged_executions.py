"""Executions that are legal but for one thing, each of which a single check refuses."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.strategy import Strategy
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.execution import execution_faults, legality_faults

# A makes v, X does nothing with it, C changes v in place, B reads what has become of it.
NETWORK = Network(
    [
        Computation("A", 1, writes=(0,)),
        Computation("X", 1),
        Computation("C", 1, reads=(0,), writes=(1,)),
        Computation("B", 1, reads=(0, 1), repeatable=False),
    ],
    [Value("v", 2), Value("c", 0, base=0)],
)


def executed(
    runs: list[int], copies: list[tuple[int, ...]], values: list[int] | None = None, size: int = 2
) -> Execution:
    """Return an execution by its runs and the uses of the copies of v."""
    trace = Trace(
        [Operation(f"o{index}", 1) for index in range(len(runs))],
        [Tensor(f"t{index}", size, uses) for index, uses in enumerate(copies)],
    )
    return Execution(trace, tuple(runs), tuple(values or [0] * len(copies)))


@pytest.mark.parametrize(
    ("execution", "fault"),
    [
        (executed([0, 1, 2, 3], [(0, 1, 2, 3)]), None),
        # Of two copies one is what the program would find.
        (executed([0, 1, 2, 0, 3], [(0, 1, 2, 4), (3, 4)]), None),
        (
            executed([0, 1, 2, 0, 3], [(0, 1, 2), (3, 4)]),
            "execution.trace.operations[4] (o4) reads c, but no copy is what the program would "
            "find",
        ),
        (
            executed([0, 1, 0, 2, 3], [(0, 1, 2, 3, 4), (2, 3)]),
            "execution.trace.operations[3] (o3) changes v in place, of which 2 copies are in use",
        ),
        # What may leave is there only when it is said to be in use.
        (
            executed([0, 1, 2, 3], [(0, 1, 3)]),
            "execution.trace.operations[2] (o2) reads v, of which no copy is there",
        ),
        # What the network does not know takes memory, and nothing else is known of it.
        (executed([0, 1, 2, 3], [(0, 1, 2, 3), (1, 3)], [0, -1]), None),
        (
            executed([1, 0, 2, 3], [(1, 2, 3)]),
            "execution.trace.operations[0] (o0) runs X before computation 0 has run",
        ),
        # What a run makes is no copy that it reads.
        (
            executed([0, 1, 2, 3], [(2, 3)]),
            "execution.trace.operations[2] (o2) reads v, of which no copy is there",
        ),
        (
            executed([0, 1, 2, 3], [(0, 1, 2, 3), (2, 3)], [0, 1]),
            "execution.trace.tensors[1] (t1) is c, which lies in the memory of another",
        ),
        (executed([0, 1, 2, 4], [(0, 1, 2)]), "execution.runs[3] must be from 0 to 3, not 4"),
        (executed([0, 1, 2, -1], [(0, 1, 2)]), "execution.runs[3] must be from 0 to 3, not -1"),
        (
            executed([0, 1, 2, 3], [(0, 1, 2, 3)], [2]),
            "execution.values[0] must be from -1 to 1, not 2",
        ),
        (
            executed([0, 1, 2, 3], [(0, 2, 3)]),
            "execution.trace.operations[2] (o2) changes v in place, which may have left before",
        ),
    ],
)
def test_what_is_wrong_is_said(execution: Execution, fault: str | None) -> None:
    faults = execution_faults(NETWORK, execution)
    assert faults == [] if fault is None else fault in faults


def test_what_is_there_at_the_start_is_gone_after_its_last_use() -> None:
    network = Network(
        [Computation("A", 1, reads=(0,)), Computation("X", 1), Computation("B", 1, reads=(0,))],
        [Value("x", 2, evictable=False)],
    )
    operations = [Operation(name, 1) for name in "AXB"]
    for uses, fault in (
        ((-1, 0, 2), []),
        ((-1, 0), ["execution.trace.operations[2] (B) reads x, of which no copy is there"]),
    ):
        trace = Trace(operations, [Tensor("x", 2, uses, evictable=False)])
        assert execution_faults(network, Execution(trace, (0, 1, 2), (0,))) == fault


def test_what_takes_no_memory_has_not_left() -> None:
    network = Network(NETWORK.computations, [Value("v", 0), Value("c", 0, base=0)])
    assert execution_faults(network, executed([0, 1, 2, 3], [(0, 2, 3)], size=0)) == []


def test_changes_are_in_the_order_of_the_program_not_of_the_values() -> None:
    network = Network(
        [
            Computation("A", 1, writes=(0,)),
            Computation("C", 1, reads=(0,), writes=(2,)),
            Computation("D", 1, reads=(0, 2), writes=(1,)),
            Computation("B", 1, reads=(0, 1), repeatable=False),
        ],
        [Value("v", 2), Value("d", 0, base=0), Value("c", 0, base=0)],
    )
    assert execution_faults(network, Strategy.plain(network).expand(network)) == []


def test_on_chains_what_is_stored_stays_and_all_else_holds_as_well() -> None:
    chain = CheckpointChain([1, 1, 1], [1, 1, 1], [1, 2, 2, 2], gradient=[0, 0, 0, 0])
    network = chain.network()
    free = Problem("free", chain, Platform(99, Fraction(1)), recompute=Recompute.ANY)
    stored = replace(free, recompute=Recompute.CHAIN)
    plain = Strategy.plain(network).expand(network)
    # What F_0 made is stored, read by F_1 again, and made again for the way back.
    given_up = Strategy([0, 1, 2, 1, 0, 3, 4, 5]).expand(network)
    assert legality_faults(free, given_up) == legality_faults(stored, plain) == []
    faults = legality_faults(stored, given_up)
    assert len(faults) == 1
    assert "is stored, and given up after operation 3, which is no backward operation" in faults[0]
    short = replace(plain.trace.operations[0], duration=0)
    trace = Trace([short, *plain.trace.operations[1:]], plain.trace.tensors)
    for problem in (free, stored):
        faults = legality_faults(problem, replace(plain, trace=trace))
        assert [fault.endswith("lasts 0 ticks instead of 1") for fault in faults] == [True]
