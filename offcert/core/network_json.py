"""Networks and executions as JSON values, in problem files and certificates."""

from __future__ import annotations

from typing import Any

from offcert.core.checkpoint_chain import CHECKPOINT_CHAIN_FIELDS, CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.documents import Fields
from offcert.core.execution import Execution
from offcert.core.forms import FLAG, TEXT, Absent, Integer, Integers, Record
from offcert.core.network import Network
from offcert.core.trace import Operation, Tensor, Trace

_OPERATION = Record(Operation, name=TEXT, duration=Integer(0), workspace=Integer(0))
_TENSOR = Record(Tensor, name=TEXT, size=Integer(0), uses=Integers(-1), evictable=FLAG)
_COMPUTATION = Record(
    Computation,
    name=TEXT,
    duration=Integer(0),
    workspace=Integer(0),
    reads=Integers(0),
    writes=Integers(0),
    repeatable=FLAG,
    holds=Absent(Integers(0), ()),
    lean=Absent(Integer(0)),
    of=Absent(Integers(0), ()),
)
_VALUE = Record(Value, name=TEXT, size=Integer(0), evictable=FLAG, base=Absent(Integer(0)))


def trace_to_json(trace: Trace) -> dict[str, Any]:
    """Return a trace as a JSON value."""
    return {
        "operations": list(map(_OPERATION.write, trace.operations)),
        "tensors": list(map(_TENSOR.write, trace.tensors)),
    }


def trace_from_json(value: Any, place: str) -> Trace:
    """Return the trace that a JSON value describes."""
    fields = Fields(value, place)
    operations = _OPERATION.read_all(fields, "operations")
    tensors = _TENSOR.read_all(fields, "tensors")
    fields.finish()
    return Trace(operations, tensors)


def network_to_json(network: Network) -> dict[str, Any]:
    """Return a network as a JSON value; what is as usual is left out."""
    return {
        "computations": list(map(_COMPUTATION.write, network.computations)),
        "values": list(map(_VALUE.write, network.values)),
    }


def network_from_json(value: Any, place: str) -> Network:
    """Return the network that a JSON value describes."""
    fields = Fields(value, place)
    computations = _COMPUTATION.read_all(fields, "computations")
    values = _VALUE.read_all(fields, "values")
    fields.finish()
    return Network(computations, values)


def checkpoint_chain_to_json(chain: CheckpointChain) -> dict[str, Any]:
    """Return a chain with recomputation as a JSON value."""
    document = {name: list(getattr(chain, name)) for name in CHECKPOINT_CHAIN_FIELDS}
    return document | {"names": list(chain.names)}


def checkpoint_chain_from_json(value: Any, place: str) -> CheckpointChain:
    """Return the chain that a JSON value describes."""
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
    """Return the execution that a JSON value describes; whether it is legal is not looked at."""
    fields = Fields(value, place)
    execution = Execution(
        trace_from_json(fields.get("trace", dict), fields.path("trace")),
        fields.integers("runs", 0),
        fields.integers("values", -1),
        fields.optional("program", dict),
    )
    fields.finish()
    return execution
