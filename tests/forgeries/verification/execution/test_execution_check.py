"""Legal executions pass, and every way of cheating is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offcert.core.computations import Computation, Run, Value
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.core.trace import Operation, Tensor, Trace
from offcert.verification.execution import execution_faults, persistency_faults
from support.problems.random_instances import seeded
from support.problems.random_networks import checkpoint_chain, random_network, random_strategy


@pytest.mark.parametrize("seed", range(300))
def test_expansions_of_strategies_are_legal(seed: int) -> None:
    rng = seeded(seed)
    network = random_network(rng, 2 + seed % 6)
    strategy = random_strategy(rng, network)
    assert execution_faults(network, strategy.expand(network)) == []
    unread = strategy.without_unread(network)
    assert execution_faults(network, unread.expand(network)) == []


def changed(execution: Execution, **fields) -> Execution:
    trace = execution.trace
    operations, tensors = list(trace.operations), list(trace.tensors)
    for (kind, index), value in fields.pop("parts", {}).items():
        (operations if kind == "operation" else tensors)[index] = value
    return replace(execution, trace=Trace(operations, tensors), **fields)


CHAIN = checkpoint_chain(seeded(3), 3)
NETWORK = Network(
    [
        Computation("F0", 2, 1, reads=(0,), writes=(1,)),
        Computation("F1", 3, 2, reads=(1,), writes=(2,), lean=1),
        Computation("B1", 4, 0, reads=(1, 2), writes=(3,), repeatable=False),
        Computation("B0", 5, 2, reads=(1, 3), writes=(4,), repeatable=False),
    ],
    [Value("x", 7), Value("a", 10), Value("b", 6), Value("db", 1, False), Value("da", 1, False)],
)
EXECUTION = Strategy([0, 1, 0, 1, 2, 3]).expand(NETWORK)


def with_tensor(index: int, **fields) -> Execution:
    tensor = replace(EXECUTION.trace.tensors[index], **fields)
    return changed(EXECUTION, parts={("tensor", index): tensor})


def with_operation(index: int, **fields) -> Execution:
    operation = replace(EXECUTION.trace.operations[index], **fields)
    return changed(EXECUTION, parts={("operation", index): operation})


def index_of(name: str, first: int) -> int:
    tensors = EXECUTION.trace.tensors
    return next(i for i, t in enumerate(tensors) if t.name == name and t.uses[0] == first)


SECOND = index_of("a", 2)


@pytest.mark.parametrize(
    ("execution", "message"),
    [
        (with_operation(1, duration=2), r"operations\[1\] \(F1\) lasts 2 ticks instead of 3"),
        (with_operation(0, workspace=0), "has a workspace of 0 units instead of 1"),
        (with_tensor(SECOND, size=9), "has 9 units, but a has 10"),
        (with_tensor(SECOND, uses=(2, 3, 4)), r"\(B0\) reads a, of which no copy is there"),
        (with_tensor(SECOND, uses=(3, 4, 5)), "operation 3 does not make it"),
        (with_tensor(index_of("db", 4), evictable=True), "may leave, but db may not"),
        (replace(EXECUTION, runs=(0, 1, 0, 1, 3, 2)), "runs B0 before computation 2 has run"),
        (replace(EXECUTION, runs=(0, 1, 0, 1, 2, 2)), "runs B1 again, which may run once only"),
        (replace(EXECUTION, runs=(0, 1, 0, 1, 2, 9)), r"runs\[5\] must be from 0 to 3, not 9"),
        (replace(EXECUTION, runs=(0, 1, 0, 1, 2, 1)), r"computation 3 \(B0\) never runs"),
    ],
)
def test_cheating_is_found(execution: Execution, message: str) -> None:
    import re

    assert EXECUTION.trace.tensors[SECOND].uses == (2, 3, 4, 5)
    faults = execution_faults(NETWORK, execution)
    assert any(re.search(message, fault) for fault in faults), faults


def test_discarded_outputs_still_take_memory_while_they_are_made() -> None:
    network = replace_lean(NETWORK)
    execution = Strategy([0, Run(1, (2,)), 1, 2, 3]).expand(network)
    assert execution.trace.operations[1].workspace == 8
    cheat = replace(execution.trace.operations[1], workspace=7)
    assert execution_faults(network, execution) == []
    assert "has a workspace of 7 units instead of 8" in str(
        execution_faults(network, changed(execution, parts={("operation", 1): cheat}))
    )


def replace_lean(network: Network) -> Network:
    return Network([replace(each, lean=None) for each in network.computations], network.values)


IN_PLACE = Network(
    [
        Computation("F0", 1, writes=(0,)),
        Computation("add_", 1, reads=(0,), writes=(1,)),
        Computation("B", 1, reads=(0, 1), repeatable=False),
    ],
    [Value("a", 5), Value("a'", 0, base=0)],
)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        # Changed twice, or made again and not changed.
        ([0, 1, 1, 2], r"\(1\) reads a, but no copy is what the program would find"),
        ([0, 1, 0, 2], r"\(2\) reads a', but no copy is what the program would find"),
    ],
)
def test_what_in_place_changes_made_of_a_copy_counts(runs: list[int], message: str) -> None:
    import re

    assert execution_faults(IN_PLACE, Strategy([0, 1, 0, 1, 2]).expand(IN_PLACE)) == []
    again = runs[2] == 0
    operations = [Operation(str(run), 1) for run in runs]
    copies = [(0, 1), (2, 3)] if again else [(0, 1, 2, 3)]
    tensors = [Tensor("a", 5, uses, evictable=False) for uses in copies]
    values = [0] * len(tensors)
    execution = Execution(Trace(operations, tensors), tuple(runs), tuple(values))
    faults = execution_faults(IN_PLACE, execution)
    assert any(re.search(message, fault) for fault in faults), faults


def test_persistency() -> None:
    network = CHAIN.network()
    stages = len(CHAIN)
    plain = Strategy.plain(network).expand(network)
    assert persistency_faults(network, plain) == []
    # a1 is kept over F1, given up, and made again.
    again = Strategy([0, 1, 2, 0, 1, 2, *range(stages, 2 * stages)]).expand(network)
    assert execution_faults(network, again) == []
    assert persistency_faults(network, again) == []
    kept = Strategy([0, 1, 1, 2, 0, 1, 2, *range(stages, 2 * stages)]).expand(network)
    assert execution_faults(network, kept) == []
    assert "a1) is stored, and given up" in str(persistency_faults(network, kept))
