"""Documents of training records (docs/formats/training.md): writing and reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from offcert.core.documents import (
    Fields,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.forms import Integer, OrNull, Plain, Record
from offcert.core.messages import show
from offcert.core.platform import Kind
from offcert.core.trace import require_integer
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
    deviation=Plain((str, type(None)), "text or null"),
)
_HOST = Record(HostMemory, pool=_BYTES, load=_BYTES, limit=_MAYBE, spilled=_BYTES, staging=_BYTES)
_DEVICE_MEMORY = Record(AllocatorPeaks, **dict.fromkeys(AllocatorPeaks.__slots__, _BYTES))


def write_training(path: str | Path, record: TrainingRecord) -> None:
    """Write a record, through a temporary file."""
    write_json(path, training_to_json(record))


def read_training(path: str | Path) -> TrainingRecord:
    """Return the record in a file."""
    return read_document(path, training_from_json)


def training_to_json(record: TrainingRecord) -> dict[str, Any]:
    """Return a record as a JSON value."""
    memory = record.memory
    return {
        "format": TRAINING_FORMAT,
        "version": TRAINING_VERSION,
        "name": record.name,
        "problem_sha256": record.problem,
        "device": record.device,
        "device_name": record.device_name,
        "versions": dict(record.versions),
        "link": "duplex" if record.duplex else "simplex",
        "limit": record.limit,
        "unplanned_peak": record.unplanned_peak,
        "times": {
            "certified": record.certified,
            "predicted": record.predicted_time,
            "measured": record.measured_time,
        },
        "peaks": {"predicted": record.predicted_peak, "measured": record.measured_peak},
        "errors": record.errors(),
        "host": asdict(record.host),
        "device_memory": None if memory is None else asdict(memory),
        "steps": [_STEP.write(step) for step in record.steps],
        "shown": record.shown,
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
    moved, transfers = _read_transfers(fields)
    names, rows = _read_operations(fields)
    planned = _course(rows["planned"], transfers["planned"])
    measured = _course(rows["measured"], transfers["measured"])
    if not names or len(planned) != len(names) or not planned.peaks:
        raise InputError("operations must not be empty, and each must have been planned")
    steps = tuple(_STEP.read_all(fields, "steps"))
    shown = _MAYBE.read(fields, "shown")
    if shown is not None and shown >= len(steps):
        raise InputError(f"shown must be one of {len(steps)} steps, counted from 0, not {shown}")
    unread = fields.get("device_memory", (dict, type(None))) is None
    record = TrainingRecord(
        fields.get("name", str),
        fields.get("problem_sha256", str),
        _one_of(fields, "device", _DEVICES),
        fields.get("device_name", str),
        fields.get("versions", dict),
        _one_of(fields, "link", ("simplex", "duplex")) == "duplex",
        fields.integer("limit", 0),
        fields.integer("unplanned_peak", 0),
        _MAYBE.read(Fields(fields.get("times", dict), "times"), "certified"),
        names,
        moved,
        planned,
        measured if len(measured) or shown is not None else None,
        steps,
        shown,
        _HOST.read_in(fields, "host"),
        None if unread else _DEVICE_MEMORY.read_in(fields, "device_memory"),
    )
    _require_derived(fields, record)
    fields.finish()
    return record


def _read_transfers(fields: Fields) -> tuple[dict[int, Moved], dict[str, list[Transfer]]]:
    moved: dict[int, Moved] = {}
    found: dict[str, list[Transfer]] = {"planned": [], "measured": []}
    for each in fields.each("transfers"):
        kind = Kind(_one_of(each, "kind", tuple(Kind)))
        gap = each.integer("gap", -1)
        tensor, size = each.get("tensor", (str, type(None))), _MAYBE.read(each, "size")
        if tensor is not None and size is not None:
            moved[gap] = Moved(tensor, size)
        for name, transfers in found.items():
            if each.get(name, (list, type(None))) is not None:
                times = each.integers(name)
                if len(times) != 2:
                    raise InputError(f"{each.path(name)} must be a start and an end")
                transfers.append(Transfer(kind, gap, *times))
        each.finish()
    return moved, found


_ROW = ("start", "end", "stall", "out_bytes", "back_bytes", "live_at_begin", "live_at_end", "peak")
_Row = dict[str, int | None]


def _read_operations(fields: Fields) -> tuple[tuple[str, ...], dict[str, list[_Row]]]:
    names = []
    found: dict[str, list[_Row]] = {"planned": [], "measured": []}
    for number, each in enumerate(fields.each("operations")):
        names.append(each.get("name", str))
        for name, rows in found.items():
            value = each.get(name, (dict, type(None)))
            if value is not None and len(rows) == number:
                rows.append(_row(Fields(value, each.path(name))))
        each.finish()
    return tuple(names), found


def _row(fields: Fields) -> _Row:
    row = {name: OrNull(Integer(), int).read(fields, name) for name in _ROW}
    for name in _ROW[:5]:
        require_integer(row[name], fields.path(name))
    fields.finish()
    return row


def _course(rows: list[_Row], transfers: list[Transfer]) -> Course:
    column = {name: [row[name] for row in rows] for name in _ROW}
    live = [
        () if None in column[name] else tuple(map(int, column[name]))  # type: ignore[arg-type]
        for name in _ROW[5:]
    ]
    starts, ends = ([int(time or 0) for time in column[name]] for name in ("start", "end"))
    return Course(Schedule(starts, ends, transfers), *live)


def _require_derived(fields: Fields, record: TrainingRecord) -> None:
    """Refuse sums and quotients that are not those of the rest."""
    expected = training_to_json(record)
    for name in ("times", "peaks", "errors", "operations"):
        if fields.get(name, (dict, list)) != expected[name]:
            raise InputError(f"{name} must be {show(expected[name])}, which follow from the rest")


def _one_of(fields: Fields, name: str, known: tuple[str, ...]) -> str:
    value: str = fields.get(name, str)
    if value not in known:
        raise InputError(
            f"{fields.path(name)} must be one of {', '.join(known)}, not {show(value)}"
        )
    return value
