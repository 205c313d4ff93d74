"""Documents of training records (docs/formats/training.md): writing and reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from offcert.core.documents import (
    Fields,
    canonical_digest,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.forms import OBJECT, TEXT, Integer, Member, Object, OrNull, Record
from offcert.core.list_forms import Each, InOrder
from offcert.core.messages import show
from offcert.core.platform import Kind, Link
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.training_record import (
    AllocatorPeaks,
    Course,
    HostMemory,
    Moved,
    StepNumbers,
    TrainingRecord,
)

TRAINING_FORMAT = "offcert-training"
# The version of the format. By definition.
TRAINING_VERSION = 1
_DEVICES = ("cpu", "simulated", "cuda")

_BYTES, _MAYBE = Integer(0), OrNull(Integer(0), int)
_STEP = Record(
    StepNumbers,
    time=_MAYBE,
    late_bytes=_BYTES,
    unfreed_bytes=_BYTES,
    outside_bytes=_BYTES,
    unforeseen_bytes=_BYTES,
    differences=_BYTES,
    deviation=OrNull(TEXT, str),
)
_HOST = Record(HostMemory, pool=_BYTES, load=_BYTES, limit=_MAYBE, spilled=_BYTES, staging=_BYTES)
_MEMORY = OrNull(
    Object(Record(AllocatorPeaks, **dict.fromkeys(AllocatorPeaks.__slots__, _BYTES))), dict
)
# Of an operation: what is always known, and what is if bytes were counted.
_TIMES = ("start", "end", "stall", "out_bytes", "back_bytes")
_COUNTED = ("live_at_begin", "live_at_end", "peak")
_ROW: Record[Any] = Record(
    dict,
    **dict.fromkeys(_TIMES, Integer()),
    **dict.fromkeys(_COUNTED, OrNull(Integer(), int)),
)
_OPERATION: Record[Any] = Record(
    dict, name=TEXT, **dict.fromkeys(("planned", "measured"), OrNull(Object(_ROW), dict))
)
_TRANSFER: Record[Any] = Record(
    dict,
    kind=Member(Kind),
    gap=Integer(-1),
    tensor=OrNull(TEXT, str),
    size=_MAYBE,
    **dict.fromkeys(("planned", "measured"), OrNull(InOrder(tuple, Integer(), Integer()), list)),
)
# Fields of a document that a record has under the same names.
_RECORD: Record[Any] = Record(
    dict,
    name=TEXT,
    device=TEXT,
    device_name=TEXT,
    versions=OBJECT,
    limit=_BYTES,
    unplanned_peak=_BYTES,
    steps=Each(Object(_STEP)),
    shown=_MAYBE,
    host=Object(_HOST),
)


def write_training(path: str | Path, record: TrainingRecord) -> None:
    """Write a record, through a temporary file."""
    write_json(path, training_to_json(record))


def read_training(path: str | Path) -> TrainingRecord:
    """Return the record in a file."""
    return read_document(path, training_from_json)


def training_to_json(record: TrainingRecord) -> dict[str, Any]:
    """Return a record as a JSON value."""
    return {
        "format": TRAINING_FORMAT,
        "version": TRAINING_VERSION,
        **_RECORD.write(record),
        "problem_sha256": record.problem,
        "link": str(Link.DUPLEX if record.duplex else Link.SIMPLEX),
        "times": {
            "certified": record.certified,
            "predicted": record.predicted_time,
            "measured": record.measured_time,
        },
        "peaks": {"predicted": record.predicted_peak, "measured": record.measured_peak},
        "errors": record.errors(),
        "device_memory": _MEMORY.write(record.memory),
        "operations": list(_operations(record)),
        "transfers": list(_transfers(record)),
    }


def _operations(record: TrainingRecord) -> Iterator[dict[str, Any]]:
    planned = _rows(record.planned, record)
    measured = [] if record.measured is None else _rows(record.measured, record)
    for index, name in enumerate(record.operations):
        yield {
            "name": name,
            "planned": planned[index],
            "measured": measured[index] if index < len(measured) else None,
        }


def _rows(course: Course, record: TrainingRecord) -> list[dict[str, Any]]:
    schedule, counted = course.schedule, bool(course.peaks)
    out, back = (course.moved(kind, record.sizes) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
    return [
        {
            "start": schedule.starts[index],
            "end": schedule.ends[index],
            "stall": course.stalls[index],
            "out_bytes": out[index],
            "back_bytes": back[index],
            "live_at_begin": course.at_begin[index] if counted else None,
            "live_at_end": course.at_end[index] if counted else None,
            "peak": course.peaks[index] if counted else None,
        }
        for index in range(len(course))
    ]


def _transfers(record: TrainingRecord) -> Iterator[dict[str, Any]]:
    for planned, measured in record.pairs():
        one = planned or measured
        assert one is not None
        moved = record.moved.get(one.gap)
        yield {
            "kind": str(one.kind),
            "gap": one.gap,
            "tensor": None if moved is None else moved.tensor,
            "size": None if moved is None else moved.size,
            "planned": None if planned is None else [planned.start, planned.end],
            "measured": None if measured is None else [measured.start, measured.end],
        }


def training_from_json(document: Any) -> TrainingRecord:
    """Return the record of a JSON value."""
    fields = Fields(document)
    require_format(fields, TRAINING_FORMAT, TRAINING_VERSION)
    transfers = _TRANSFER.read_all(fields, "transfers")
    operations = _OPERATION.read_all(fields, "operations")
    planned, measured = (_course(operations, transfers, way) for way in ("planned", "measured"))
    if not operations or len(planned) != len(operations) or not planned.peaks:
        raise InputError("operations must not be empty, and each must have been planned")
    said = _RECORD.values(fields)
    shown, device = said["shown"], said["device"]
    if shown is not None and shown >= len(said["steps"]):
        count = len(said["steps"])
        raise InputError(f"shown must be one of {count} steps, counted from 0, not {shown}")
    if device not in _DEVICES:
        raise InputError(f"device must be one of {', '.join(_DEVICES)}, not {show(device)}")
    record = TrainingRecord(
        problem=fields.get("problem_sha256", str),
        duplex=Member(Link).read(fields, "link") is Link.DUPLEX,
        certified=_MAYBE.read(Fields(fields.get("times", dict), "times"), "certified"),
        operations=tuple(row["name"] for row in operations),
        moved={
            row["gap"]: Moved(row["tensor"], row["size"])
            for row in transfers
            if None not in (row["tensor"], row["size"])
        },
        planned=planned,
        measured=measured if len(measured) or shown is not None else None,
        memory=_MEMORY.read(fields, "device_memory"),
        **said,
    )
    _require_derived(fields, record)
    fields.finish()
    return record


def _course(
    operations: Sequence[dict[str, Any]], transfers: Sequence[dict[str, Any]], way: str
) -> Course:
    """Return the step as it was planned, or measured up to the last operation that has ended."""
    rows = list(takewhile(lambda row: row is not None, (each[way] for each in operations)))
    column = {name: tuple(row[name] for row in rows) for name in _ROW.forms}
    moves = [Transfer(m["kind"], m["gap"], *m[way]) for m in transfers if m[way] is not None]
    # Where one is missing, none is known: what is written again then differs, and is refused.
    counted = all(None not in column[name] for name in _COUNTED)
    live = (column[name] if counted else () for name in _COUNTED)
    return Course(Schedule(column["start"], column["end"], moves), *live)


def _require_derived(fields: Fields, record: TrainingRecord) -> None:
    """Refuse sums and quotients that are not those of the rest."""
    expected = training_to_json(record)
    for name in ("times", "peaks", "errors", "operations"):
        # As text: for Python 0, 0.0 and false are one number.
        if canonical_digest(fields.get(name, (dict, list))) != canonical_digest(expected[name]):
            raise InputError(f"{name} must be {show(expected[name])}, which follow from the rest")
