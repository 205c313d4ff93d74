"""Networks and executions as JSON values, in problem files and certificates."""

from __future__ import annotations

from offcert.core.chain import Chain
from offcert.core.checkpoint_chain import CHECKPOINT_CHAIN_FIELDS, CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.execution import Execution
from offcert.core.forms import FLAG, OBJECT, TEXT, Absent, Integer, Integers, Object, Record
from offcert.core.list_forms import Each
from offcert.core.network import Network
from offcert.core.trace import Operation, Tensor, Trace

_OPERATION = Record(Operation, name=TEXT, duration=Integer(0), workspace=Integer(0))
_TENSOR = Record(Tensor, name=TEXT, size=Integer(0), uses=Integers(-1), evictable=FLAG)
TRACE = Record(Trace, operations=Each(Object(_OPERATION)), tensors=Each(Object(_TENSOR)))

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
NETWORK = Record(Network, computations=Each(Object(_COMPUTATION)), values=Each(Object(_VALUE)))

_SIZES, _NAMES = Integers(0), Absent(Each(TEXT), always=True)
CHAIN = Record(
    Chain,
    forward=_SIZES,
    backward=_SIZES,
    activation=_SIZES,
    gradient=_SIZES,
    forward_workspace=_SIZES,
    backward_workspace=_SIZES,
    names=_NAMES,
)
CHECKPOINT_CHAIN = Record(
    CheckpointChain, **dict.fromkeys(CHECKPOINT_CHAIN_FIELDS, _SIZES), names=_NAMES
)

# Whether an execution is legal is not looked at.
EXECUTION = Record(
    Execution,
    trace=Object(TRACE),
    runs=Integers(0),
    values=Integers(-1),
    program=Absent(OBJECT),
)
