"""What is changed in place must not have left before: its copy on the host would be out of date."""

from __future__ import annotations

from offcert.core.computations import Computation, Value
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.core.trace import Operation, Tensor, Trace
from offcert.verification.execution import execution_faults

NETWORK = Network(
    [
        Computation("A", 1, writes=(0,)),
        Computation("S", 1),
        Computation("C", 1, reads=(0,), writes=(1,)),
        Computation("T", 1),
        Computation("D", 1, reads=(0, 1)),
    ],
    [Value("x", 4), Value("x'", 0, base=0)],
)


def execution(uses: tuple[int, ...], evictable: bool = True, size: int = 4) -> Execution:
    operations = [Operation(each.name, 1) for each in NETWORK.computations]
    trace = Trace(operations, [Tensor("x", size, uses, evictable)])
    return Execution(trace, tuple(range(5)), (0,))


def test_a_tensor_that_may_leave_before_it_is_changed_is_refused() -> None:
    assert execution_faults(NETWORK, execution((0, 2, 4))) == [
        "execution.trace.operations[2] (C) changes x in place, which may have left before"
    ]


def test_one_that_can_leave_only_after_the_change_is_legal() -> None:
    assert execution_faults(NETWORK, execution((0, 1, 2, 4))) == []
    assert execution_faults(NETWORK, execution((0, 2, 4), evictable=False)) == []
    assert Strategy.plain(NETWORK).expand(NETWORK).trace.tensors[0].uses == (0, 1, 2, 4)


def test_one_that_is_there_at_the_start_must_stay_until_then() -> None:
    network = Network(
        [Computation("S", 1), Computation("C", 1, reads=(0,), writes=(1,))],
        [Value("x", 4), Value("x'", 0, base=0)],
    )
    operations = [Operation("S", 1), Operation("C", 1)]
    for uses, faults in (((-1, 1), 1), ((-1, 0, 1), 0)):
        trace = Trace(operations, [Tensor("x", 4, uses)])
        assert len(execution_faults(network, Execution(trace, (0, 1), (0,)))) == faults
