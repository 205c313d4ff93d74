"""A run writes one copy of a value, and a value that is there at the start is there once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.core.trace import Tensor, Trace
from offcert.verification.execution import execution_faults


@pytest.mark.parametrize("value", [0, 1])
def test_two_copies_from_one_run_are_refused(value: int) -> None:
    network = Network(
        [Computation("w", 1, 0, (0,), (1,)), Computation("r", 1, 0, (0, 1), (2,))],
        [Value("x", 1), Value("y", 2), Value("z", 3)],
    )
    execution = Strategy.plain(network).expand(network)
    assert execution_faults(network, execution) == []
    trace = execution.trace
    twice = trace.tensors[execution.values.index(value)]
    assert isinstance(twice, Tensor)
    more = Execution(
        Trace(trace.operations, [*trace.tensors, replace(twice)]),
        execution.runs,
        (*execution.values, value),
    )
    assert "is a second copy" in str(execution_faults(network, more))
