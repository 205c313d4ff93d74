"""The same computations with other numbers: of another machine, or at another point of a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcert.core.chain import Chain
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.trace import Operation, Tensor, Trace

Executed = Trace | Chain | Network | CheckpointChain


def with_durations(network: Executed, durations: Sequence[int]) -> Executed:
    """Return a network with other durations, given in the order in which everything runs once."""
    if isinstance(network, Network):
        computations = zip(network.computations, durations, strict=True)
        return Network((replace(c, duration=ticks) for c, ticks in computations), network.values)
    if isinstance(network, Trace):
        operations = zip(network.operations, durations, strict=True)
        return Trace((replace(o, duration=ticks) for o, ticks in operations), network.tensors)
    stages = len(network)
    # The stages' backward operations run in the opposite order.
    forward, backward = durations[:stages], durations[: stages - 1 : -1]
    fields = {name: getattr(network, name) for name in network.__dataclass_fields__}
    return type(network)(**fields | {"forward": forward, "backward": backward})


def executed_on(execution: Execution, ours: Network, other: Network) -> Execution:
    """Return an execution with the numbers of another network of the same structure.

    What the trace has beyond its own network (a longer run, a larger workspace) it keeps.
    """
    trace = execution.trace
    kept: list[set[int]] = [set() for _ in execution.runs]
    for tensor, value in zip(trace.tensors, execution.values, strict=True):
        if tensor.uses[0] >= 0:
            kept[tensor.uses[0]].add(value)

    def workspace(network: Network, index: int) -> int:
        computation = network.computations[execution.runs[index]]
        lost = [
            value
            for value in computation.writes
            if value not in kept[index] and network.values[value].base is None
        ]
        if lost and computation.lean is not None:
            return computation.lean
        return computation.workspace + network.size_of(lost)

    operations = []
    for index, (operation, run) in enumerate(zip(trace.operations, execution.runs, strict=True)):
        longer = operation.duration - ours.computations[run].duration
        larger = operation.workspace - workspace(ours, index)
        operations.append(
            Operation(
                operation.name,
                other.computations[run].duration + longer,
                workspace(other, index) + larger,
            )
        )
    tensors = []
    for tensor, value in zip(trace.tensors, execution.values, strict=True):
        size = tensor.size
        if value >= 0:
            size += other.values[value].size - ours.values[value].size
        tensors.append(Tensor(tensor.name, size, tensor.uses, tensor.evictable))
    return replace(execution, trace=Trace(operations, tensors))
