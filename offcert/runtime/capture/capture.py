"""`Capture`: a training step as a trace, and what the runtime needs to follow a plan for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from offcert.core.carried.ranges import NO_RANGES, RANGES, Ranges
from offcert.core.carried.record import RECORD, StepRecord
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import (
    FLAG,
    LIST,
    TEXT,
    Absent,
    Integer,
    Integers,
    Object,
    OrNull,
    Plain,
    Record,
    member,
)
from offcert.core.list_forms import Each, InOrder
from offcert.core.network import Network
from offcert.core.trace import Trace
from offcert.runtime.watch.events import Event
from offcert.runtime.watch.saved_hooks import SavedPlace
from offcert.runtime.watch.signature import Signature


class Clock(StrEnum):
    """The clock of a capture: the part of the step that one operation of the trace stands for.

    ``modules``: what happens between two events at the boundaries of leaf modules, forward or
    backward. ``operators``: one operator. ``graphs``: what TorchInductor would fuse, in the graphs
    that `torch.compile` makes; for `offcert.backend` (`offcert.runtime.compiled.graph_network`).
    """

    MODULES = "modules"
    OPERATORS = "operators"
    GRAPHS = "graphs"


@dataclass(frozen=True)
class Storage:
    """A storage that the model's forward pass saves."""

    place: SavedPlace  # By what it is recognised
    tensor: int | None  # The evictable tensor of the trace that it is a part of


@dataclass(frozen=True)
class Capture:
    """A captured step."""

    trace: Trace  # The operations and tensors of the device
    clock: Clock  # The kind of its operations
    ticks: tuple[Event, ...]  # For each operation, the event with which it begins
    storages: tuple[Storage, ...]  # Everything that the model's forward pass saves, in order
    calls: tuple[Signature, ...]  # Of every call of the model in the step
    backward_passes: int  # How many of them go through the model in the step
    tensors: str  # "fake" or "real": what the step was run on
    device: str  # Kind of device whose operators were run; others may save other tensors
    # Bytes that the trace does not count: parameters, gradients, buffers, batch, optimiser.
    uncounted: Mapping[str, int]
    # What can be computed from what; its plain trace is the trace. None if that is not clear, or if
    # the capture was read from a problem, which has it.
    network: Network | None = None
    ranges: Ranges = NO_RANGES  # Of operations that can run again as one segment
    record: StepRecord | None = None  # How they run again; only with the clock of modules
    # For each call of the model, the nodes of the autograd graph that it made, or -1 if that is not
    # known; empty in problems that do not say.
    nodes: tuple[int, ...] = ()
    # Whether autocast was active when the backward pass began; None in problems that do not say.
    autocast: bool | None = None
    # Whether its sizes were computed from those of two captures: then steps may be smaller.
    interpolated: bool = False
    # By kernel that attention runs on, the part of its peak that the stated hardware reaches.
    attention: Mapping[str, Fraction] = field(default_factory=dict, compare=False)

    @property
    def saved(self) -> list[tuple[Any, ...]]:
        """Of each storage operation, bytes, data type, shape and tensor, as problems hold it."""
        return [(*each.place[:-1], each.tensor) for each in self.storages]

    def to_json(self) -> dict[str, Any]:
        """Return everything but the trace as a JSON value, for the ``source`` of a problem."""
        document = _DOCUMENT.write(self)
        if self.record is None:
            del document["ranges"]
        return document


_DOCUMENT: Record[Any] = Record(
    dict,
    ticks=Each(InOrder(Event, TEXT, TEXT, Integer(), Integer(), Integer())),
    saved=Each(InOrder(tuple, Integer(), Integer(0), TEXT, Integers(0), OrNull(Integer(), int))),
    calls=Each(LIST),
    backward_passes=Integer(1),
    tensors=TEXT,
    device=TEXT,
    # Older problems say nothing of these two.
    nodes=Absent(Integers(-1), (), always=True),
    autocast=Absent(Plain((bool, type(None)), "true, false or null"), always=True),
    ranges=Absent(Object(RANGES), NO_RANGES, always=True),
    record=Absent(Object(RECORD)),
    interpolated=Absent(FLAG, False),
)


def read_capture(source: Mapping[str, Any] | None, trace: Trace) -> Capture:
    """Return the capture that the ``source`` of a problem holds."""
    if source is None or "capture" not in source:
        clock = "nothing" if source is None else f"the clock {source.get('clock', 'stages')!r}"
        if source is not None and source.get("clock") == Clock.GRAPHS:
            raise InputError(
                "the problem is about compiled graphs, which only torch.compile follows, with "
                "backend=offcert.backend(certificate); for other training profile the model with "
                "the clock modules"
            )
        raise InputError(
            f"the problem was made with {clock}, which training cannot follow; profile the model "
            "with the clock modules"
        )
    found = _DOCUMENT.read(Fields(source["capture"], "source.capture"))
    storages = number_places(found.pop("saved"))
    clock = member(Clock, str(source.get("clock")), "source.clock")
    uncounted = dict(source.get("uncounted", {}))
    capture = Capture(trace, clock, storages=storages, uncounted=uncounted, **found)
    _require_fit(capture)
    return capture


def _require_fit(capture: Capture) -> None:
    if len(capture.ticks) != len(capture.trace):
        raise InputError(
            f"source.capture.ticks has {len(capture.ticks)} entries for {len(capture.trace)} "
            "operations"
        )
    require_once(capture.ticks)
    if capture.tensors not in ("fake", "real"):
        raise InputError(f'source.capture.tensors is {capture.tensors!r}, not "fake" or "real"')
    if not capture.calls:
        raise InputError("source.capture.calls is empty")
    _require_storages(capture)


def require_once(ticks: Sequence[Event]) -> None:
    """Raise an `InputError` if two operations begin with the same event."""
    operation_of: dict[Event, int] = {}
    for operation, event in enumerate(ticks):
        other = operation_of.setdefault(event, operation)
        if other != operation:
            raise InputError(
                f"source.capture.ticks: operations {other} and {operation} begin with the same "
                f"event {list(event)}"
            )


def _require_storages(capture: Capture) -> None:
    sizes: dict[int, int] = {}
    for index, storage in enumerate(capture.storages):
        operation, tensor = storage.place.operation, storage.tensor
        if not 0 <= operation < len(capture.trace):
            raise InputError(f"source.capture.saved[{index}] names operation {operation}")
        if tensor is None:
            continue
        if not 0 <= tensor < len(capture.trace.tensors):
            raise InputError(f"source.capture.saved[{index}] names tensor {tensor!r}")
        sizes[tensor] = sizes.get(tensor, 0) + storage.place.size
    for tensor, size in sizes.items():
        expected = capture.trace.tensors[tensor].size
        if size != expected:
            raise InputError(
                f"source.capture.saved has {size} bytes for tensor {tensor}, whose size is "
                f"{expected}"
            )


def number_places(rows: Any) -> tuple[Storage, ...]:
    """Return storages of rows (operation, size, dtype, shape, tensor); equal rows are numbered."""
    counts: dict[tuple[Any, ...], int] = {}
    storages = []
    for operation, size, dtype, shape, tensor in rows:
        kind = (operation, size, dtype, shape)
        ordinal = counts.get(kind, 0)
        counts[kind] = ordinal + 1
        storages.append(Storage(SavedPlace(operation, size, dtype, shape, ordinal), tensor))
    return tuple(storages)
