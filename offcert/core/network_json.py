"""Networks and executions as JSON values, in problem files and certificates."""

from __future__ import annotations

from typing import Any

from offcert.core.checkpoint_chain import CHECKPOINT_CHAIN_FIELDS, CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.documents import Fields
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.trace import Operation, Tensor, Trace


def trace_to_json(trace: Trace) -> dict[str, Any]:
    """Return a trace as a JSON value."""
    return {
        "operations": [
            {"name": o.name, "duration": o.duration, "workspace": o.workspace}
            for o in trace.operations
        ],
        "tensors": [
            {"name": t.name, "size": t.size, "uses": list(t.uses), "evictable": t.evictable}
            for t in trace.tensors
        ],
    }


def trace_from_json(value: Any, place: str) -> Trace:
    """Return the trace that a JSON value describes.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(value, place)
    operations = []
    for item in fields.each("operations"):
        operations.append(
            Operation(
                item.get("name", str), item.integer("duration", 0), item.integer("workspace", 0)
            )
        )
        item.finish()
    tensors = []
    for item in fields.each("tensors"):
        tensors.append(
            Tensor(
                item.get("name", str),
                item.integer("size", 0),
                item.integers("uses", -1),
                item.get("evictable", bool),
            )
        )
        item.finish()
    fields.finish()
    return Trace(operations, tensors)


def network_to_json(network: Network) -> dict[str, Any]:
    """Return a network as a JSON value; what is as usual is left out."""
    computations = []
    for each in network.computations:
        item: dict[str, Any] = {
            "name": each.name,
            "duration": each.duration,
            "workspace": each.workspace,
            "reads": list(each.reads),
            "writes": list(each.writes),
            "repeatable": each.repeatable,
        }
        if each.holds:
            item["holds"] = list(each.holds)
        if each.lean is not None:
            item["lean"] = each.lean
        if each.of:
            item["of"] = list(each.of)
        computations.append(item)
    values = []
    for value in network.values:
        item = {"name": value.name, "size": value.size, "evictable": value.evictable}
        if value.base is not None:
            item["base"] = value.base
        values.append(item)
    return {"computations": computations, "values": values}


def network_from_json(value: Any, place: str) -> Network:
    """Return the network that a JSON value describes.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(value, place)
    computations = [_computation_from_json(item) for item in fields.each("computations")]
    values = [_value_from_json(item) for item in fields.each("values")]
    fields.finish()
    return Network(computations, values)


def _computation_from_json(item: Fields) -> Computation:
    computation = Computation(
        item.get("name", str),
        item.integer("duration", 0),
        item.integer("workspace", 0),
        item.integers("reads", 0),
        item.integers("writes", 0),
        item.get("repeatable", bool),
        item.integers("holds", 0) if item.has("holds") else (),
        item.integer("lean", 0) if item.has("lean") else None,
        item.integers("of", 0) if item.has("of") else (),
    )
    item.finish()
    return computation


def _value_from_json(item: Fields) -> Value:
    value = Value(
        item.get("name", str),
        item.integer("size", 0),
        item.get("evictable", bool),
        item.integer("base", 0) if item.has("base") else None,
    )
    item.finish()
    return value


def checkpoint_chain_to_json(chain: CheckpointChain) -> dict[str, Any]:
    """Return a chain with recomputation as a JSON value."""
    document = {name: list(getattr(chain, name)) for name in CHECKPOINT_CHAIN_FIELDS}
    return document | {"names": list(chain.names)}


def checkpoint_chain_from_json(value: Any, place: str) -> CheckpointChain:
    """Return the chain that a JSON value describes.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(value, place)
    numbers = {name: fields.integers(name, 0) for name in CHECKPOINT_CHAIN_FIELDS}
    names = fields.optional("names", list)
    fields.finish()
    return CheckpointChain(**numbers, names=names)


def execution_to_json(execution: Execution) -> dict[str, Any]:
    """Return an execution as a JSON value."""
    document: dict[str, Any] = {
        "trace": trace_to_json(execution.trace),
        "runs": list(execution.runs),
        "values": list(execution.values),
    }
    if execution.program is not None:
        document["program"] = dict(execution.program)
    return document


def execution_from_json(value: Any, place: str) -> Execution:
    """Return the execution that a JSON value describes; whether it is legal is not looked at.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(value, place)
    execution = Execution(
        trace_from_json(fields.get("trace", dict), fields.path("trace")),
        fields.integers("runs", 0),
        fields.integers("values", -1),
        fields.optional("program", dict),
    )
    fields.finish()
    return execution
